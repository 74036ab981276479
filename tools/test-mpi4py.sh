#!/usr/bin/env bash
# Runs mpi4py's own tests of collectives and requests at 4 ranks on Open MPI, with the preload
# library and without; one machine counts as four, and what the ranks exchange crosses sockets.
# MPICH's ranks never give a core away, so that 4 of them on 2 cores take too long here:
# tools/mpi4py-suite.py --mpi mpich runs them.
#
# Uses libomnes.so of the debug build, which `cargo xtask ci` leaves. Status: that of
# tools/mpi4py-suite.py: 77 where nothing can be run, such as without the Python index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug
cargo build --quiet -p omnes-capi
crates/omnes-mpi/build.sh --quiet "$built"
library=$built/libomnes-mpi-openmpi.so
options=(--mpi openmpi --ranks 4 --quick --preload "openmpi=$library")
exec tools/mpi4py-suite.py "${options[@]}" --env OMNES_MPI_ONE_NODE=on --env OMNES_SHM=off "$@"
