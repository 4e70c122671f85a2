# Shared by the other scripts (sourced): messages, the Python to use, packages of the system.

say() { printf 'llmgw: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Prints all that a set-up .venv depends on: a changed lock, or a moved checkout, is set up again.
wanted() { echo "$(cat "$1" requirements/model.txt pyproject.toml | cksum) $(pwd)"; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints the Python to use: $PYTHON when set, else the first one that is new enough.
find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "no ${PYTHON:-python3}")
    fail "needs Python 3.11 or newer, found $found; install one, or name it: make PYTHON=/path/to/python3 ..."
}

# Prints the Debian packages that a virtual environment and llama.cpp need and that are not there.
missing_packages() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
        case $1 in
        */python3) echo python3-venv ;;
        *) echo "$(basename "$1")-venv" ;;
        esac
    [ "$(uname -s)" = Linux ] || return 0
    "$1" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || echo libgomp1
    "$1" -c 'import ctypes; ctypes.CDLL("libstdc++.so.6")' 2>/dev/null || echo libstdc++6
}

# Installs packages with apt when root may; returns 1, silently, where that is not possible.
apt_install() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
    say "installing $* (apt)"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # Lists may be absent or older than the mirror: fetch them when the first try fails.
    if apt-get install -y --no-install-recommends "$@" </dev/null >"$log" 2>&1 ||
        { apt-get update </dev/null >"$log" 2>&1 &&
            apt-get install -y --no-install-recommends "$@" </dev/null >>"$log" 2>&1; }; then
        rm -f "$log"
        return 0
    fi
    tail -n 5 "$log" >&2
    rm -f "$log"
    return 1
}

# Makes sure of the system packages that the given Python needs to serve, or ends with one line.
need_system_packages() {
    needed=$(missing_packages "$1" | tr '\n' ' ')
    needed=${needed% }
    [ -n "$needed" ] || return 0
    # shellcheck disable=SC2086 # one word a package
    apt_install $needed || fail "these system packages are missing; run: $(as_root)apt-get install $needed"
}

as_root() { [ "$(id -u)" = 0 ] || printf 'sudo '; }
