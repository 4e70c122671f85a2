#!/bin/sh
# Sets up, checks and runs every test; arguments go to pytest (and then the check is left out).
# With CI set a missing tool fails; elsewhere what needs it is skipped and the last line says what brings it.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

sh scripts/setup.sh all

chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
missing=
if ! chromium >/dev/null; then
    apt_install chromium || missing=chromium
fi
if [ -n "$missing" ] && [ -n "${CI:-}" ]; then
    fail "tests need these system packages: $missing; run: $(as_root)apt-get install $missing"
fi

status=0
if [ $# -eq 0 ]; then
    sh scripts/check.sh || status=1
    set -- --ignore=tests/style # the check has just run these
fi
.venv/bin/python -m pytest "$@" || status=1
[ -z "$missing" ] ||
    say "tests in a browser were skipped; this brings what they need: $(as_root)apt-get install $missing"
exit $status
