#!/usr/bin/env bash
# Omnes beside MPI libraries: see tools/bench-peers.py and its --help.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bench-peers.py" "$@"
