#!/bin/sh
# Shows that `make run` works on a bare machine: Debian with python3 and make, without python3-venv, libgomp1 or pip.
#
#   sh scripts/bare_root_check.sh [setup|run|ci]     (as root; needs debootstrap and git; not part of CI)
#
# Makes a bare root, clones the committed state of this repository into it, and there
#   1. as a user without rights: `make setup` must end with one line that says what to install;
#   2. as root: `make setup` must install it, and a second `make setup` must do nothing;
#   3. (run) `make run` until the first token; stop it; nothing may be left; the same from the pip cache,
#      with a new .venv and new data, and once more with the data kept. Prints the times as one line of JSON.
#   4. (ci, alone) `.ci/run`, as root and without standard input, must pass.
# BARE_BASE=DIR keeps the bare root in DIR for the next time; PORT, ADMIN_PORT choose ports (18080, 18081).
set -eu
cd "$(dirname "$0")/.."

if [ "${BARE_INSIDE:-}" != 1 ]; then
    [ "$(id -u)" = 0 ] || { echo "bare_root_check: run it as root" >&2; exit 1; }
    command -v debootstrap >/dev/null || { echo "bare_root_check: needs debootstrap; apt-get install it" >&2; exit 1; }
    top=$(mktemp -d /var/tmp/llmgw-bare.XXXXXX)
    trap 'rm -rf --one-file-system "$top"' EXIT
    base=${BARE_BASE:-$top/base}
    if [ ! -e "$base/complete" ]; then
        echo "bare_root_check: making a bare root" >&2
        mkdir -p "$base"
        debootstrap --variant=minbase --include=python3,make bookworm "$base/root" >"$base/log" 2>&1 ||
            { tail "$base/log" >&2; exit 1; }
        touch "$base/complete"
    fi
    cp -a "$base/root" "$top/root"
    git clone -q --no-hardlinks . "$top/root/srv/llmgw"
    # Own mounts and process ids: when this ends, however it ends, both are gone, and nobody else's process is seen.
    unshare --mount --pid --fork --kill-child --mount-proc -- env BARE_INSIDE=1 BARE_ROOT="$top/root" sh "$0" "${1:-run}"
    exit
fi

root=$BARE_ROOT
mode=$1
port=${PORT:-18080} admin_port=${ADMIN_PORT:-18081}
fail() { echo "bare_root_check: FAILED: $*" >&2; exit 1; }
say() { echo "bare_root_check: $*" >&2; }

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t sysfs -o ro sysfs "$root/sys"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -e $certificates ]; then
    # Where this machine trusts authorities of its own, pip in there must too; a place no package writes to.
    cp $certificates "$root/srv/certificates.crt"
    export PIP_CERT=/srv/certificates.crt
fi
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb ${PIP_CERT:+PIP_CERT=$PIP_CERT} sh -c "cd /srv/llmgw && $1"; }
seconds() { cut -d ' ' -f 1 /proc/uptime; }
since() { echo "$1 $(seconds)" | awk '{printf "%.1f", $2 - $1}'; }

if inside 'python3 -c "import ensurepip"' 2>/dev/null || inside 'python3 -c "import ctypes; ctypes.CDLL(\"libgomp.so.1\")"' 2>/dev/null; then
    fail "the bare root is not bare"
fi

if [ "$mode" = ci ]; then
    began=$(seconds)
    inside 'CI=true bash .ci/run' </dev/null || fail "ci after $(since "$began") s"
    say "ci passed in $(since "$began") s"
    exit 0
fi

chown -R 1000:1000 "$root/srv/llmgw"
chroot --userspec=1000:1000 "$root" env -i PATH=/usr/bin:/bin HOME=/tmp sh -c 'cd /srv/llmgw && make setup' >"$root/user.log" 2>&1 &&
    fail "make setup worked without rights"
said=$(grep -v '^make: ' "$root/user.log")
[ "$said" = "llmgw: these system packages are missing; run: sudo apt-get install python3-venv libgomp1" ] ||
    fail "a user without rights was told: $said"
say "a user without rights is told one line: fine"
chown -R 0:0 "$root/srv/llmgw"

began=$(seconds)
inside 'make setup' </dev/null >"$root/setup.log" 2>&1 || { cat "$root/setup.log" >&2; fail "make setup"; }
setup_s=$(since "$began")
sed 's/^/    /' "$root/setup.log" >&2
began=$(seconds)
inside 'make setup' </dev/null || fail "the second make setup"
again_s=$(since "$began")
say "make setup: $setup_s s, again $again_s s: fine"
[ "$mode" = run ] || exit 0

# Runs `make run` until the first token, stops it, and leaves the seconds from the start in $took.
serve() {
    began=$(seconds)
    inside "exec make run ARGS='--data /srv/data --port $port --admin-port $admin_port'" </dev/null >"$root/run.log" 2>&1 &
    runner=$!
    inside "python3 scripts/first_token.py $port /srv/data/first-key 300" >"$root/token.log" ||
        { cat "$root/run.log" >&2; fail "$1: no token"; }
    took=$(since "$began")
    say "$1: first token after $took s"
    kill -TERM "$(pgrep -f 'llmgw up' | head -n 1)"
    wait "$runner" || true
    left=$(pgrep -fa 'llmgw|xllamacpp|llama' || true)
    [ -z "$left" ] || fail "$1: left running: $left"
}
rm -rf "$root/srv/llmgw/.venv"
serve "cold, packages cached"
cold_s=$took
serve "second run"
sed 's/^/    /' "$root/run.log" >&2
echo "{\"setup_download_s\": $setup_s, \"setup_again_s\": $again_s, \"make_run_cached_s\": $cold_s, \"make_run_again_s\": $took}"
