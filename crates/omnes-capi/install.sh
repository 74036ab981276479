#!/usr/bin/env bash
# Installs or removes the C library: header, libomnes.so, libomnes.a and the pkg-config file; and,
# if they are built, the libraries that MPI programs preload, and the commands omnes, with man pages
# and bash completions, and omnesd, with its systemd unit.
#
#   crates/omnes-capi/install.sh [--remove] [PREFIX]   PREFIX: an absolute path, default /usr/local
#
# Run `cargo build --release` first. DESTDIR, if set, is prepended to every path written to, but
# does not appear in any file. Run by root without DESTDIR, the script also runs ldconfig. Exit
# status: 0; 2 if the library is not built or PREFIX is not absolute.
set -euo pipefail

remove=
if [[ ${1:-} == --remove ]]; then
    remove=yes
    shift
fi
prefix=${1:-/usr/local}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/release
destination=${DESTDIR:-}$prefix
unit=lib/systemd/system/omnesd.service
pages=share/man/man1
completions=share/bash-completion/completions/omnes

workspace=$here/../../Cargo.toml
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$workspace")
soname=libomnes.so.${version%%.*}

# Updates the loader's cache, or prints what the user has to do.
tell_loader() {
    [[ -z ${DESTDIR:-} ]] || return 0
    local wanted folder looks_there=
    wanted=$(readlink -f "$prefix/lib") || true
    # The loader may know the folder by another name, such as /lib for /usr/lib.
    while IFS=: read -r folder _; do
        [[ $folder != /* || $(readlink -f "$folder") != "$wanted" ]] || looks_there=yes
    done < <(PATH+=:/sbin:/usr/sbin; ldconfig -NXv 2>/dev/null)
    if [[ -z $looks_there ]]; then
        [[ -n $remove ]] || echo "install: the loader does not look in $prefix/lib: name it in" \
            "LD_LIBRARY_PATH, or in a file in /etc/ld.so.conf.d and let root run ldconfig"
    elif [[ $(id -u) -eq 0 ]]; then
        (PATH+=:/sbin:/usr/sbin; ldconfig)
    else
        echo "install: programs find the library when root has run ldconfig"
    fi
}

[[ $prefix == /* ]] || { echo "install: $prefix is not an absolute path" >&2; exit 2; }
if [[ -n $remove ]]; then
    rm -f "$destination/include/omnes.h" "$destination/lib/pkgconfig/omnes.pc" \
        "$destination/lib"/libomnes.{a,so} "$destination/lib"/libomnes.so.[0-9]* \
        "$destination/lib"/libomnes-mpi-*.so "$destination/bin"/omnes{,d} "$destination/$unit" \
        "$destination/$pages"/omnes{,-*}.1 "$destination/$completions"
    tell_loader
    echo "omnes: removed from $destination"
    exit
fi
for library in libomnes_c.so libomnes_c.a; do
    if [[ ! -e $target/$library ]]; then
        echo "install: no $library in $target; run 'make' first" >&2
        exit 2
    fi
done

# Escaped for the right side of sed's s|||.
escaped=$(sed 's/[&|\\]/\\&/g' <<<"$prefix")
install -d "$destination/include" "$destination/lib/pkgconfig"
install -m 644 "$here/include/omnes.h" "$destination/include/omnes.h"
# Of several libraries with the same soname, ldconfig would select the newest.
rm -f "$destination/lib/$soname"*
install -m 755 "$target/libomnes_c.so" "$destination/lib/libomnes.so.$version"
install -m 644 "$target/libomnes_c.a" "$destination/lib/libomnes.a"
ln -sfn "libomnes.so.$version" "$destination/lib/$soname"
ln -sfn "$soname" "$destination/lib/libomnes.so"
sed -e "s|@prefix@|$escaped|" -e "s|@version@|$version|" "$here/omnes.pc.in" \
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
if [[ -x $target/omnes ]]; then
    "$target/omnes" manual "$destination/$pages"
    install -d "$(dirname "$destination/$completions")"
    "$target/omnes" completions bash >"$destination/$completions"
fi
if [[ -x $target/omnesd ]]; then
    install -d "$(dirname "$destination/$unit")"
    sed "s|/usr/local/bin/omnesd|$escaped/bin/omnesd|" "$here/../../dist/omnesd.service" \
        >"$destination/$unit"
    # systemd does not find units elsewhere; with DESTDIR, this is up to the packager.
    case ${DESTDIR:-}:$prefix in
        :/usr | :/usr/local | [!:]*) ;;
        *) echo "install: systemd is told of the agent by: systemctl link $prefix/$unit" ;;
    esac
fi
echo "omnes $version: installed in $destination"
tell_loader
