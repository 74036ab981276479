#!/usr/bin/env bash
# Builds the preload library of each MPI whose compiler wrapper is installed.
#
#   crates/omnes-mpi/build.sh [--optional] [--quiet] [DIRECTORY]
#
# DIRECTORY must contain libomnes.so (`cargo build -p omnes-capi` creates it), and
# libomnes-mpi-openmpi.so and libomnes-mpi-mpich.so are created there; the default is the
# workspace's release folder.
#
# Wrappers tried: those named in MPICC, separated by spaces, then mpicc, mpicc.openmpi and
# mpicc.mpich. The first wrapper of each MPI is used. CC (default: cc) links; CPPFLAGS is added when
# compiling C.
#
# Exit status: 0; 1 if a library cannot be built; 2 for wrong usage, an invalid MPICC, or a missing
# libomnes.so; 77 if there is no MPI to build for (0 with --optional).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
include=$here/../omnes-capi/include
needed="needed: Open MPI 4.1 or later, MPICH 4.0 or later"
# Preprocessing this identifies the MPI of mpi.h. Several MPIs also define MPICH's macros.
probe='#include <mpi.h>
#if defined(I_MPI_VERSION)
omnes-finds intel
#elif defined(MVAPICH2_VERSION) || defined(MVAPICH_VERSION)
omnes-finds mvapich
#elif defined(OPEN_MPI)
omnes-finds openmpi OMPI_MAJOR_VERSION OMPI_MINOR_VERSION
#elif defined(MPICH_NUMVERSION)
omnes-finds mpich MPICH_NUMVERSION
#endif'

complain() {
    echo "omnes-mpi: $*" >&2
}

# Prints the MPI of wrapper $1: its name, major and minor version; only the name if it is not
# supported.
identify() {
    local line words
    line=$("$1" -E -P -x c - <<<"$probe" 2>/dev/null | grep '^omnes-finds') || return 1
    read -ra words <<<"$line"
    case ${words[1]} in
        openmpi) echo "openmpi $((words[2])) $((words[3]))" ;;
        # 40002300 is 4.0.2, with release type 3.
        mpich) echo "mpich $((words[2] / 10000000)) $((words[2] / 100000 % 100))" ;;
        *) echo "${words[1]}" ;;
    esac
}

# True if MPI $1 of version $2.$3 is supported.
is_supported() {
    case $1 in
        openmpi) (($2 > 4 || ($2 == 4 && $3 >= 1))) ;;
        mpich) (($2 >= 4)) ;;
        *) false ;;
    esac
}

# Builds the library of MPI $1 with wrapper $2.
build() {
    local mpi=$1 wrapper=$2 name=libomnes-mpi-$1.so folder=$scratch/$1 source errors
    local flags=(-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror -I"$include")
    local -a added
    read -ra added <<<"${CPPFLAGS:-}"
    mkdir "$folder"
    for source in "$here"/c/*.c; do
        "$wrapper" "${flags[@]}" "${added[@]}" -c "$source" -o "$folder/$(basename "$source" .c).o"
    done
    # Not linked with the MPI: its functions come from the program into which the library is loaded,
    # and are bound at their first call.
    "${CC:-cc}" -shared -pthread -Wl,-soname,"$name" -Wl,-z,lazy -Wl,-rpath,"\$ORIGIN" \
        -o "$folder/$name" "$folder"/*.o -L"$directory" -lomnes
    # Shells and Python preload the library, too; binding immediately reveals functions that
    # libomnes.so lacks. The rpath finds libomnes.so only in the library's own folder.
    errors=$(LD_BIND_NOW=1 LD_LIBRARY_PATH=$directory LD_PRELOAD=$folder/$name /bin/true 2>&1) ||
        true
    if [[ -n $errors ]]; then
        complain "$name cannot be loaded into a program without MPI: $errors"
        exit 1
    fi
    # Renamed, not overwritten: running ranks keep the library they have loaded.
    mv "$folder/$name" "$directory/.$name.$$"
    mv "$directory/.$name.$$" "$directory/$name"
}

# Reads the command line into optional, quiet and directory.
read_arguments() {
    optional=no
    quiet=no
    directory=${CARGO_TARGET_DIR:-$here/../../target}/release
    while [[ $# -gt 0 ]]; do
        case $1 in
            --optional) optional=yes ;;
            --quiet) quiet=yes ;;
            -*)
                complain "no option $1; usage: build.sh [--optional] [--quiet] [DIRECTORY]"
                exit 2
                ;;
            *) directory=$1 ;;
        esac
        shift
    done
}

# Builds with wrapper $1, unless it is missing, unsupported, or of an MPI whose library is already
# built.
try() {
    local wrapper=$1 found mpi major minor
    command -v "$wrapper" >/dev/null || return 0
    if ! found=$(identify "$wrapper"); then
        complain "$wrapper is left out: it finds no mpi.h, or that of an unknown MPI; $needed"
        return 0
    fi
    read -r mpi major minor <<<"$found"
    [[ $built != *" $mpi "* ]] || return 0
    if ! is_supported "$mpi" "$major" "$minor"; then
        complain "$wrapper is left out: it is $mpi${major:+ $major.$minor}; $needed"
        return 0
    fi
    if [[ ! -e $directory/libomnes.so ]]; then
        complain "no libomnes.so in $directory; 'cargo build --release -p omnes-capi' makes it"
        exit 2
    fi
    build "$mpi" "$wrapper"
    built+="$mpi "
    [[ $quiet == yes ]] ||
        echo "omnes-mpi: $directory/libomnes-mpi-$mpi.so, by $wrapper ($mpi $major.$minor)"
}

main() {
    local wrapper given built=" "
    read_arguments "$@"
    read -ra given <<<"${MPICC:-}"
    for wrapper in "${given[@]}"; do
        if ! command -v "$wrapper" >/dev/null; then
            complain "MPICC=$MPICC: no command $wrapper"
            exit 2
        fi
    done
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    for wrapper in "${given[@]}" mpicc mpicc.openmpi mpicc.mpich; do
        try "$wrapper"
    done
    if [[ $built == " " && $optional == no ]]; then
        complain "no MPI to build for; 'make setup' installs both, MPICC names a wrapper; $needed"
        exit 77
    fi
}

main "$@"
