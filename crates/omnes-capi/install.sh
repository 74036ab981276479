#!/usr/bin/env bash
# Installs the C library: header, libomnes.so, libomnes.a and the pkg-config file; beside it, where
# they are built, the libraries that MPI programs preload, and the commands omnes and omnesd.
#
#   crates/omnes-capi/install.sh [PREFIX]     PREFIX: an absolute path, default /usr/local
#
# Needs `cargo build --release` before. DESTDIR, when set, is put before every path that is written
# and is in no file. Status: 0; 2 when the library is not built or PREFIX is not absolute.
set -euo pipefail

prefix=${1:-/usr/local}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/release
destination=${DESTDIR:-}$prefix

[[ $prefix == /* ]] || { echo "install: $prefix is not an absolute path" >&2; exit 2; }
for library in libomnes_c.so libomnes_c.a; do
    if [[ ! -e $target/$library ]]; then
        echo "install: no $library in $target; run 'make' first" >&2
        exit 2
    fi
done

workspace=$here/../../Cargo.toml
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$workspace")
soname=libomnes.so.${version%%.*}
install -d "$destination/include" "$destination/lib/pkgconfig"
install -m 644 "$here/include/omnes.h" "$destination/include/omnes.h"
install -m 755 "$target/libomnes_c.so" "$destination/lib/libomnes.so.$version"
install -m 644 "$target/libomnes_c.a" "$destination/lib/libomnes.a"
ln -sfn "libomnes.so.$version" "$destination/lib/$soname"
ln -sfn "$soname" "$destination/lib/libomnes.so"
sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" "$here/omnes.pc.in" \
    >"$destination/lib/pkgconfig/omnes.pc"
for library in "$target"/libomnes-mpi-*.so; do
    [[ ! -e $library ]] || install -m 755 "$library" "$destination/lib"
done
for program in omnes omnesd; do
    if [[ -x $target/$program ]]; then
        install -d "$destination/bin"
        install -m 755 "$target/$program" "$destination/bin"
    fi
done
echo "omnes $version: installed in $destination"
