#!/usr/bin/env bash
# Shows Omnes at work on this machine: broadcast and barrier over 8 ranks, then one file copied to 8
# places. Root gets a lab of 8 namespace hosts, other users 8 processes on the loopback interface.
#
#   tools/demo.sh            (`make run` builds first)
#
# Leaves nothing behind, even if interrupted. Status: 0, or 1 if a copy differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

omnes=target/release/omnes
ranks=8
file_bytes=$((64 << 20))
child=

scratch=$(mktemp -d "${TMPDIR:-/tmp}/omnes-demo.XXXXXX")
cleanup() {
    trap '' INT TERM HUP
    if [[ -n $child ]]; then
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$scratch"
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

if [[ ! -x $omnes ]]; then
    echo "demo: $omnes is not built; run 'make'" >&2
    exit 2
fi
place=()
where="loopback, one host"
if [[ $(id -u) -eq 0 ]]; then
    if command -v ip >/dev/null && unshare --net true 2>/dev/null; then
        place=(--lab=ephemeral)
        where="an ephemeral lab, $ranks hosts"
    else
        echo "demo: no iproute2 or no right to make network namespaces: loopback instead" >&2
    fi
fi

echo "== broadcast and barrier, $ranks ranks, $where"
launch "$omnes" run -n "$ranks" "${place[@]}" --no-prefix -- \
    "$omnes" bench bcast,barrier --sizes 8,64k,4m --budget 0.3s

echo "== one file of $((file_bytes >> 20)) MiB to $ranks places, $where"
mkdir "$scratch/copies"
head -c "$file_bytes" /dev/urandom >"$scratch/payload"
launch "$omnes" run -n "$ranks" "${place[@]}" --no-prefix -- \
    "$omnes" cp "$scratch/payload" "$scratch/copies/rank-{rank}"

# The copies may be files of that name, or folders that contain one.
mapfile -d '' copies < <(find "$scratch/copies" -type f -print0 | sort -z)
if [[ ${#copies[@]} -ne $ranks ]]; then
    echo "demo: ${#copies[@]} copies, not $ranks" >&2
    exit 1
fi
(cd "$scratch" && sha256sum payload "${copies[@]#"$scratch"/}") | tee "$scratch/sums"
if [[ $(cut -d ' ' -f 1 "$scratch/sums" | sort -u | wc -l) -ne 1 ]]; then
    echo "demo: the checksums differ" >&2
    exit 1
fi
echo "all $ranks checksums are equal"
