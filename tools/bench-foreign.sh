#!/usr/bin/env bash
# How much the firmware costs foreign packets and its own: a flood of ordinary UDP between two
# namespaces with and without the firmware, then the time in the programs by path. Requires root and
# clang.
#
#   tools/bench-foreign.sh
#
# Builds in release mode first. Results go to stdout, everything else to stderr. Leaves nothing
# behind: namespaces have no names and end with the program. Status: 0; 1 if over the target or
# without root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $(id -u) -ne 0 ]]; then
    echo "bench-foreign: needs root" >&2
    exit 1
fi
cargo build --release --package omnes-nic --example foreign --example cost
examples=${CARGO_TARGET_DIR:-target}/release/examples
"$examples/foreign"
"$examples/cost"
