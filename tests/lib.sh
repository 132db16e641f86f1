# shellcheck shell=bash
# Sourced by the suites. A suite run without an argument makes its own pool in shared memory, mounts it and leaves
# nothing behind; given a DIRECTORY it runs there instead, so that any file system can be compared.
#
#   PERDURE         the command under test (default: the release build)
#   PERDURE_TOOLS   where scripts/install-tools.sh put pjdfstest and fsx
#   KEEP=1          leave the work directory for a look afterwards
#   POOL_CLASS=log  the pool lies on the disk of POOL_DISK (default: /var/tmp) and has a log
#   MOUNT_OPTIONS   further options of every mount
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PERDURE=${PERDURE:-${CARGO_TARGET_DIR:-$repository/target}/release/perdure}
# shellcheck disable=SC2034
tools=${PERDURE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/perdure/tools}/bin
work=$(mktemp -d /dev/shm/perdure-test.XXXXXX)
pool=$work/pool mnt=$work/mnt log=$work/server.log
server='' given='' fuse_magic=65735546
if [ "${POOL_CLASS:-}" = log ]; then
    disk=$(mktemp -d "${POOL_DISK:-/var/tmp}/perdure-test.XXXXXX")
    pool=$disk/pool
fi
chmod 755 "$work"
mkdir "$mnt"
: >"$log"

fail() { echo "FAILED: $*"; exit 1; }
note() { echo "-- $*"; }

# Every suite ends here, whatever happened: nothing mounted, nothing running, and no panic in the server's log.
cleanup() {
    local status=$?
    trap - EXIT
    local jobs
    jobs=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$jobs" ] || kill -9 $jobs 2>/dev/null || true
    wait 2>/dev/null || true
    while grep -q " $mnt " /proc/self/mounts; do umount -l "$mnt" || break; done
    if grep -n "panicked" "$log"; then echo "FAILED: the server panicked"; status=1; fi
    if [ "$status" != 0 ] && [ -s "$log" ]; then echo "-- end of the server's log"; tail -n 20 "$log"; fi
    # A killed server leaves the files of segments that processes had as ones that only grow.
    chattr -R -f -a "$work" || true
    if [ -n "${KEEP:-}" ]; then echo "kept: $work ${disk:-}"; else rm -rf "$work" ${disk:+"$disk"}; fi
    # A server that was killed at the end has left the memory of a pool with a log.
    if [ -n "${disk:-}" ] && [ -n "${memory:-}" ]; then rm -rf "$memory"; fi
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# begin SIZE [DIRECTORY] - mount a fresh pool of SIZE, or use DIRECTORY; sets $dir, the place to work in.
begin() {
    if [ -n "${2:-}" ]; then
        given=$2
        dir=$(mktemp -d "$2/suite.XXXXXX")
        chmod 755 "$dir"
        return
    fi
    [ -x "$PERDURE" ] || fail "no $PERDURE: build it with 'make suites' or set PERDURE"
    [ -c /dev/fuse ] || fail "no /dev/fuse: load the fuse module (modprobe fuse), or give the container --device /dev/fuse"
    make_pool "$1"
    mount_pool
    # shellcheck disable=SC2034
    dir=$mnt
}

make_pool() {
    local class=(--volatile)
    [ "${POOL_CLASS:-}" != log ] || class=()
    "$PERDURE" mkfs "$pool" --size "$1" "${class[@]}" >>"$log" 2>&1 || fail "mkfs of $1: $(tail -n 1 "$log")"
    memory=/dev/shm/perdure-$(od -An -tx1 -j16 -N16 "$pool/super" | tr -d ' \n')
}

# mount_pool [OPTION...] - in the foreground, as a child, so that $server is exactly the process to kill.
mount_pool() {
    # shellcheck disable=SC2086
    "$PERDURE" mount --foreground ${MOUNT_OPTIONS:-} "$@" "$pool" "$mnt" >>"$log" 2>&1 &
    server=$!
    for _ in {1..600}; do
        # One question: the directory below is another file system, and a dead mount does not answer this.
        [ "$(stat -f -c %t "$mnt" 2>/dev/null)" != $fuse_magic ] || return 0
        kill -0 "$server" 2>/dev/null || fail "the mount ended: $(tail -n 3 "$log")"
        sleep 0.05
    done
    fail "no mount within 30 s"
}

kill_server() {
    { kill -9 "$server" && wait "$server"; } 2>/dev/null || true
    server=''
}

umount_pool() {
    "$PERDURE" umount "$mnt" || fail "umount"
    wait "$server" || fail "the server ended with status $? after umount"
    server=''
}

remount() { kill_server; mount_pool; }

fsck_clean() {
    "$PERDURE" fsck "$pool" >"$work/fsck.log" 2>&1 || { local status=$?; cat "$work/fsck.log"; fail "fsck: status $status"; }
}

# finish - unmount and check the pool; a suite that was given a directory only tidies up.
finish() {
    if [ -n "$given" ]; then rm -rf "$dir"; else umount_pool; fsck_clean; fi
}

need() { local name; for name; do command -v "$name" >/dev/null || fail "needs $name: run scripts/install-tools.sh test"; done; }

# describe TREE - every name with type, mode, owner, links, size, times, content and attributes.
describe() {
    (cd "$1" && find . ! -type d -printf '%P|%y|%m|%U:%G|%s|%n|%T@|%l\0' | sort -z | tr '\0\n' '\n?')
    (cd "$1" && find . -type d -printf '%P|%m|%U:%G|%n|%T@\0' | sort -z | tr '\0\n' '\n?')
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
    (cd "$1" && getfattr -R -h -d -m 'user\.' . 2>/dev/null)
}
