#!/usr/bin/env bash
# Runs mpi4py's own tests at 4 ranks with the preload library and without, for each MPI found; one
# machine counts as four, and what the ranks exchange crosses sockets.
#
# Uses libomnes.so of the debug build, which `cargo xtask ci` leaves. Status: that of
# tools/mpi4py-suite.py: 77 where nothing can be run, such as without the Python index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug
cargo build --quiet -p omnes-capi
crates/omnes-mpi/build.sh --quiet "$built"
preloads=()
for mpi in openmpi mpich; do
    library=$built/libomnes-mpi-$mpi.so
    [[ ! -e $library ]] || preloads+=(--preload "$mpi=$library")
done
exec tools/mpi4py-suite.py --ranks 4 --quick "${preloads[@]}" --env OMNES_MPI_ONE_NODE=on \
    --env OMNES_SHM=off "$@"
