#!/bin/sh
# Judges how the code is written: format, lint, types, import contracts, tidy. Runs all, then fails if one failed.
set -u
cd "$(dirname "$0")/.."
. scripts/common.sh

failed=
step() {
    name=$1
    shift
    if "$@"; then
        say "$name: fine"
    else
        failed="$failed $name"
        say "$name: FAILED"
    fi
}
bench=$([ ! -d bench ] || echo bench)

step format .venv/bin/ruff format --quiet --diff .
step lint .venv/bin/ruff check --quiet .
# shellcheck disable=SC2086 # absent or one word
step types .venv/bin/mypy --no-error-summary src tests scripts $bench
step imports .venv/bin/lint-imports --no-logo
step tidy .venv/bin/python -m pytest -q tests/style
[ -z "$failed" ] || fail "check failed:$failed"
