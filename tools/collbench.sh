#!/usr/bin/env bash
# Builds the benchmark programs that share their loop with other libraries, on Omnes:
#
#   target/release/omnes-collbench    collective operations; the loop is that of the peers
#   target/release/omnes-floor        the same loop on as little as a barrier or a small broadcast
#                                     can be, for comparison
#   target/release/omnes-pt2pt        latency and bandwidth of messages; the loop is benches/pt2pt.c
#
#   tools/collbench.sh            (`make collbench` builds libomnes.so first)
#
# They find libomnes.so beside themselves, and are started like any rank, by the environment only:
#
#   target/release/omnes run -n 4 -- target/release/omnes-collbench --ops barrier,bcast --sizes 64k
#
# OMNES_PEERS is the folder of the peers (default ../shared/peers beside this repository), CC the
# compiler. Status: 0; 77 if the peers' loop is missing (omnes-pt2pt is still built); 2 if
# libomnes.so is not built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peers=${OMNES_PEERS:-../shared/peers}
out=${CARGO_TARGET_DIR:-target}/release
compiler=${CC:-cc}

# Compiles the sources after the program's name; $strict holds options that the peers' loop would
# fail.
compile() {
    local program=$1
    shift
    # shellcheck disable=SC2016  # $ORIGIN is for the loader.
    "$compiler" -std=c11 -O2 -Wall -Wextra "${strict[@]}" -Ibenches \
        -Icrates/omnes-capi/include -o "$program.new" "$@" \
        -L"$out" -lomnes -lm -Wl,-rpath,'$ORIGIN'
    # Replaces the program atomically, even while a rank of an older build runs.
    mv "$program.new" "$program"
    echo "$program"
}

if [[ ! -e $out/libomnes.so ]]; then
    echo "collbench: $out/libomnes.so is not built; run 'make'" >&2
    exit 2
fi
if ! command -v "$compiler" >/dev/null; then
    echo "collbench: no C compiler '$compiler'; 'make setup' installs one, CC names another" >&2
    exit 2
fi

strict=(-Werror -pedantic)
compile "$out/omnes-pt2pt" benches/pt2pt_omnes.c benches/pt2pt.c benches/pt2pt_cpu.c

if [[ ! -r $peers/bench/collbench.c || ! -r $peers/bench/collbench.h ]]; then
    echo "collbench: the measuring loop is missing: no collbench.c and collbench.h in" >&2
    echo "collbench: $peers/bench; OMNES_PEERS=FOLDER names the folder that holds bench/" >&2
    exit 77
fi
strict=()
compile "$out/omnes-collbench" -I"$peers/bench" benches/collbench_omnes.c "$peers/bench/collbench.c"
compile "$out/omnes-floor" -I"$peers/bench" benches/collbench_floor.c "$peers/bench/collbench.c"
