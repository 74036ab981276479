#!/usr/bin/env bash
# The benchmarks of this library: messages between 2 ranks, collectives over 8. Root gets labs of
# namespace hosts, other users processes on the loopback interface, which is not a network: compare
# numbers only with others of the same kind.
#
#   tools/bench.sh [OPTION...]     (`make bench ARGS="..."`); options go to both `omnes bench`
#
# Builds in release mode first. Results go to stdout, everything else to stderr. Leaves nothing
# behind, even if interrupted. Status: 0, or that of the first benchmark that failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

omnes=${CARGO_TARGET_DIR:-target}/release/omnes
child=

# shellcheck disable=SC2317  # Reached through the trap.
cleanup() {
    trap '' INT TERM HUP
    if [[ -n $child ]]; then
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# In the background, so that a signal sent only to this script reaches the ranks immediately; as a
# job of its own, since a plain background process would pass an ignored SIGINT on to the ranks.
launch() {
    set -m
    "$@" </dev/null &
    child=$!
    set +m
    local status=0
    wait "$child" || status=$?
    child=
    return "$status"
}

launch cargo build --release --package omnes-cli

place=()
where="loopback, one host"
if [[ $(id -u) -eq 0 ]]; then
    if command -v ip >/dev/null && unshare --net true 2>/dev/null; then
        place=(--lab=ephemeral)
        where="a lab, one host per rank"
    else
        echo "bench: no iproute2 or no right to make network namespaces: loopback instead" >&2
    fi
fi

bench() {
    local ranks=$1 operations=$2
    shift 2
    echo "== $operations: $ranks ranks, $where" >&2
    launch "$omnes" run -n "$ranks" "${place[@]}" --no-prefix -- "$omnes" bench "$operations" "$@"
}

bench 2 latency,bandwidth "$@"
bench 8 bcast,barrier,allreduce "$@"
