#!/usr/bin/env bash
# Puts the Python package together, as a folder that PYTHONPATH may name:
#
#   crates/omnes-py/build.sh [FOLDER]     FOLDER: default target/python
#
# Needs `cargo build --release` before; OMNES_PY_LIBRARY names another lib_omnes.so.
# `pip install ./crates/omnes-py` builds and installs the same by itself. Status: 0; 2 when the
# library is not built.
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
# Whole or not at all, also while a program uses the old one.
install -m 644 "$library" "$folder/omnes/.new"
mv "$folder/omnes/.new" "$folder/omnes/_omnes.abi3.so"
echo "$folder"
