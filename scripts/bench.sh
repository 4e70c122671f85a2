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
for file in bench/[a-z]*.py; do
    name=$(basename "$file" .py)
    case $name in facts | report) ;; *)
        say "measuring $name"
        .venv/bin/python -m "bench.$name"
        ;;
    esac
done
exec .venv/bin/python -m bench.report
