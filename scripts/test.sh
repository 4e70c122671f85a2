#!/bin/sh
# Sets up, checks and runs every test; arguments go to pytest (and then the check is left out).
# With CI set a missing tool fails; elsewhere what needs it is skipped and the last line says what brings it.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

sh scripts/setup.sh all

chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
postgresql() { ls /usr/lib/postgresql/*/bin/initdb || command -v initdb; }
compiler() { command -v gcc || command -v cc; } # for the instrument of bench/gateway
missing=
chromium >/dev/null 2>&1 || missing="chromium"
postgresql >/dev/null 2>&1 || missing="${missing:+$missing }postgresql"
compiler >/dev/null 2>&1 || missing="${missing:+$missing }gcc libc6-dev"
# shellcheck disable=SC2086 # one word a package
if [ -n "$missing" ] && apt_install $missing; then
    missing=
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
    say "tests that need these were skipped; this brings them: $(as_root)apt-get install $missing"
exit $status
