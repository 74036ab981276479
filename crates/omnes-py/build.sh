#!/usr/bin/env bash
# Builds the Python package, as a folder to be named in PYTHONPATH:
#
#   crates/omnes-py/build.sh [FOLDER]     FOLDER: default target/python
#
# Requires `cargo build --release`; OMNES_PY_LIBRARY names another lib_omnes.so. `pip install
# ./crates/omnes-py` builds and installs the same by itself. Status: 0; 2 if the library is not
# built.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
folder=${1:-$target/python}
library=${OMNES_PY_LIBRARY:-$target/release/lib_omnes.so}

if [[ ! -e $library ]]; then
    echo "build: no $library; run 'make' first" >&2
    exit 2
fi
install -d "$folder/omnes"
install -m 644 "$here"/python/omnes/{*.py,*.pyi,py.typed} "$folder/omnes/"
# Replaces the library atomically, even while a program uses the old one.
install -m 644 "$library" "$folder/omnes/.new"
mv "$folder/omnes/.new" "$folder/omnes/_omnes.abi3.so"
echo "$folder"
