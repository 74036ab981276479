#!/usr/bin/env bash
# Builds Omnes with a profile of this machine: hot code is contiguous and rare code is out of the
# way, which matters most where ranks share cores.
#
#   tools/profiled.sh       (make profiled)
#
# Builds with counters, runs `omnes bench` (as root in a lab, otherwise over loopback), and leaves
# the profile in target/profiled/omnes.profdata. `make` then builds with it, until `make clean`.
# Takes twice as long as a build. Requires `rustup component add llvm-tools`. Status: 0; 2 if that
# is missing; otherwise that of the command that failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$PWD/target/profiled
counts=$folder/counts
omnes=$folder/release/omnes

profdata=$(find "$(rustc --print sysroot)" -name llvm-profdata -print -quit)
if [[ -z $profdata ]]; then
    echo "profiled: no llvm-profdata; 'rustup component add llvm-tools' brings it" >&2
    exit 2
fi

echo "profiled: building with counters"
rm -rf "$counts" "$folder/omnes.profdata"
RUSTFLAGS="-Cprofile-generate=$counts" \
    cargo build --release --workspace --target-dir "$folder"

network=()
[[ $EUID -ne 0 ]] || network=(--lab)
# measure KIND ARGUMENT...: runs `omnes bench` and stores its counts as KIND
measure() {
    local kind=$1 ranks
    shift
    for ranks in 2 8; do
        echo "profiled: $kind messages, $ranks ranks ${network[*]}"
        LLVM_PROFILE_FILE=$counts/$kind/%m_%p.profraw \
            "$omnes" run -n "$ranks" "${network[@]}" --no-prefix -- "$omnes" bench "$@"
    done
}
measure short latency,barrier,bcast,wbcast,allreduce --sizes 8,1k --budget 0.5s
measure long bandwidth,bcast,allreduce --sizes 64k,1m --budget 0.1s

# A long message runs its inner loops a thousand times as often as a short one, so that the path of
# a short one would count as rare.
for kind in short long; do
    "$profdata" merge --sparse -o "$folder/$kind.profdata" "$counts/$kind"/*.profraw
done
"$profdata" merge --sparse --weighted-input=1000,"$folder/short.profdata" \
    --weighted-input=1,"$folder/long.profdata" -o "$folder/omnes.profdata"
rm -rf "$counts"
echo "profiled: 'make' builds with target/profiled/omnes.profdata now"
