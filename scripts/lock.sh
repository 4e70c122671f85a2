#!/bin/sh
# Writes requirements/run.txt and dev.txt again: every release pinned with its hashes, for all systems, no addresses.
# Keeps the releases already pinned; `--upgrade` takes newer ones. dev.txt holds the releases of run.txt and more.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

uv=$(command -v uv || true)
[ -x .venv/bin/uv ] && uv=.venv/bin/uv
[ -n "$uv" ] || fail "make lock needs uv; run: .venv/bin/pip install uv"

compile() {
    out=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links -o "$out" "$@" pyproject.toml requirements/build.in
}
compile requirements/run.txt --extra llamacpp --extra quickstart "$@"
compile requirements/dev.txt --extra llamacpp --extra quickstart --extra dev -c requirements/run.txt "$@"
if grep -n '://' requirements/*.txt; then
    fail "a lock names an address (above); locks hold names, releases and hashes only"
fi
