#!/usr/bin/env bash
# Measures Omnes against MPI libraries; see tools/bench-peers.py and its --help.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bench-peers.py" "$@"
