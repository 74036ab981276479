#!/usr/bin/env bash
# Runs mpi4py's own tests at 4 ranks on Open MPI, with and without the preload library, then a
# program of ours that uses mpi4py. One machine counts as four: what the ranks exchange crosses
# sockets. Communicators are connected in their first call, since these tests make few calls on
# each. MPICH's ranks never yield a core, so that 4 of them on 2 cores take too long here:
# tools/mpi4py-suite.py --mpi mpich runs them.
#
# Uses libomnes.so of the debug build, which `cargo xtask ci` leaves. Status: that of
# tools/mpi4py-suite.py: 77 if nothing can be run, for example without the Python index; 1 if the
# program fails or did not use Omnes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
built=$target/debug/eager
ranks=4

cargo build --quiet -p omnes-capi
mkdir -p "$built"
for name in libomnes.so libomnes.so.0; do
    ln -sf "../$name" "$built/$name"
done
CPPFLAGS=-DSHIM_MEETING_CALLS=1 crates/omnes-mpi/build.sh --quiet "$built"
library=$built/libomnes-mpi-openmpi.so
options=(--mpi openmpi --ranks "$ranks" --preload "openmpi=$library")
tools/mpi4py-suite.py "${options[@]}" --env OMNES_MPI_ONE_NODE=on --env OMNES_SHM=off "$@"

# program [NAME=VALUE...]: runs the program with these variables.
program() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun.openmpi \
        --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n "$ranks" \
        env OMNES_MPI_ONE_NODE=on OMNES_SHM=off OMNES_MPI_REPORT=on "$@" \
        "$target/mpi4py/venv.openmpi/bin/python" crates/omnes-mpi/programs/python/mix.py 2>&1
}

program
told=$(program LD_PRELOAD="$library")
echo "$told"
taken="^omnes-mpi: MPI_COMM_WORLD, $ranks ranks: taken [1-9][0-9]* of [0-9]* broadcasts"
grep -q "$taken" <<<"$told" || {
    echo "test-mpi4py: no broadcast was taken" >&2
    exit 1
}
