#!/usr/bin/env bash
# Runs `cargo xtask ci` so that nothing outlives it, however it ends.
#
# Temporary files go to a folder of this run. As root, the run gets process and mount namespaces of
# its own: when it ends or is interrupted, the kernel kills every process in it, and removes every
# mount and pinned network namespace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Only a hint: a missing package may not be needed by the tests that can run on this machine.
tools/setup.sh --check build mpi || true

scratch=$(mktemp -d "${TMPDIR:-/tmp}/omnes-test.XXXXXX")
child=
made=()

# shellcheck disable=SC2317  # Reached through the trap.
cleanup() {
    trap '' INT TERM HUP
    # Also after a normal end, for processes that a failed test left in this process group.
    if [[ -n $child ]]; then
        # Inside namespaces the first process ignores TERM; the death of its parent kills it
        # reliably.
        kill -s "$ending" -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$scratch"
    [[ ${#made[@]} -eq 0 ]] || rmdir "${made[@]}" 2>/dev/null || true
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

command=(cargo xtask ci "$@")
ending=TERM
# setpriv kills the run even if this script is killed and cannot clean up.
isolate=(setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child=KILL --mount-proc)
if [[ $(id -u) -eq 0 ]] && "${isolate[@]}" true 2>/dev/null; then
    ending=KILL
    # Folders where labs leave names; mounted over inside, so that names of this run vanish with it.
    for folder in /run/netns /run/omnes-lab; do
        [[ -d $folder ]] || { mkdir -p "$folder" && made+=("$folder"); }
    done
    # shellcheck disable=SC2016  # "$@" belongs to the inner shell.
    command=("${isolate[@]}" bash -c '
        mount -t tmpfs tmpfs /run/netns && mount -t tmpfs tmpfs /run/omnes-lab && "$@"
    ' omnes-test "${command[@]}")
fi

# In the background, so that a signal sent only to this script is handled immediately; as a job of
# its own, since a plain background process would pass an ignored SIGINT on to the tests.
set -m
mkdir -m 700 "$scratch/live"
TMPDIR=$scratch OMNES_STATS=$scratch/live XDG_CACHE_HOME=$scratch/cache "${command[@]}" </dev/null &
child=$!
set +m
status=0
wait "$child" || status=$?
exit "$status"
