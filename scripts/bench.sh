#!/bin/sh
# Runs one measurement (`bench.sh gateway --json`) or, without arguments, all of them.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

[ -d bench ] || fail "there are no measurements in this checkout (bench/ is missing)"
if [ $# -gt 0 ]; then
    name=$1
    shift
    exec .venv/bin/python -m "bench.$name" "$@"
fi
exec .venv/bin/python -m bench
