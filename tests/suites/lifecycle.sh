#!/usr/bin/env bash
# The life of a mount as users see it: in the background, ended by umount, SIGTERM or SIGINT, killed and mounted again,
# read-only, and by an ordinary user.
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "mounts by itself"
need python3
make_pool 256M

# process - the server, as the mount itself tells.
process() { "$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["process"])'; }
background() { "$PERDURE" mount --log "$log" "$@" "$pool" "$mnt" >"$work/said" 2>&1 || { cat "$work/said"; fail "mount $*"; }; }
gone() { for _ in {1..200}; do [ -e "/proc/$1" ] || return 0; sleep 0.05; done; fail "the server did not end"; }
sums() { (cd "$pool" && sha256sum super segment-* | sha256sum); }

background
grep -q volatile "$work/said" || fail "the mount does not print its class"
echo one >"$mnt/file"
"$PERDURE" umount "$mnt" || fail "umount"
fsck_clean
for signal in TERM INT; do
    background
    grep -q clean "$work/said" || fail "the mount before SIG$signal was not ended cleanly: $(cat "$work/said")"
    echo "$signal" >>"$mnt/file"
    server=$(process)
    kill -"$signal" "$server"
    gone "$server"
    ! mountpoint -q "$mnt" || fail "SIG$signal left a mount behind"
    fsck_clean
done
note "SIGTERM and SIGINT unmount cleanly"

background
echo killed >>"$mnt/file"
server=$(process)
kill -9 "$server"
gone "$server"
! stat -f "$mnt" >/dev/null 2>&1 || fail "a dead mount answers"
background
grep -q recovered "$work/said" || fail "no word of the recovery: $(cat "$work/said")"
[ "$(cat "$mnt/file")" = "$(printf 'one\nTERM\nINT\nkilled')" ] || fail "content after kill -9: $(cat "$mnt/file")"
note "a dead mount is taken over"

server=$(process)
kill -9 "$server"
gone "$server"
before=$(sums)
background --read-only
[ "$(tail -n 1 "$mnt/file")" = killed ] || fail "content of a crashed pool, read-only"
! touch "$mnt/new" 2>"$work/said" || fail "a read-only mount can be written"
grep -q "Read-only file system" "$work/said" || fail "not EROFS: $(cat "$work/said")"
"$PERDURE" umount "$mnt"
[ "$(sums)" = "$before" ] || fail "a read-only mount wrote to the pool"
note "read-only writes nothing"

# An ordinary user, by fusermount3. The device may be root's here, so the user gets a node of his own in a namespace.
if [ "$(id -u)" = 0 ]; then
    install -m 755 "$PERDURE" "$work/program"
    own=$(mktemp -d)
    mkdir "$own/mnt"
    chown -R nobody "$own"
    mknod -m 666 "$own/fuse" c 10 229
    cat >"$own/script" <<'END'
set -e
"$1" mkfs "$2/pool" --size 64M --volatile
"$1" mount "$2/pool" "$2/mnt" -o nosuid,nodev,noexec
grep "^$2/pool .*noexec" /proc/self/mounts
echo mine >"$2/mnt/file"
[ "$(stat -c %u "$2/mnt/file")" = 65534 ]
"$1" umount "$2/mnt"
"$1" fsck "$2/pool"
END
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount --bind "$1/fuse" /dev/fuse && exec setpriv --reuid 65534 --regid 65534 --clear-groups bash "$1/script" "$2" "$1"' \
        user "$own" "$work/program" >"$work/said" 2>&1 || { cat "$work/said"; rm -rf "$own"; fail "as an ordinary user"; }
    rm -rf "$own"
    note "an ordinary user mounts and unmounts"
    # A mount of root's is everybody's, by the pool's name and by its own; and it is not asked for what only root may know.
    background
    chmod 1777 "$mnt"
    as_user() { PERDURE_PRELOAD=$library setpriv --reuid 65534 --regid 65534 --clear-groups "$work/program" "$@"; }
    library=$(ldd /bin/sh | awk '/libc.so/ { print $3 }')
    for place in "$pool" "$mnt"; do
        # shellcheck disable=SC2016
        as_user run "$place" -- sh -c 'echo user >>"$PERDURE_MNT/theirs"' || fail "run $place as another user"
    done
    [ "$(stat -c %u:%s "$mnt/theirs")" = 65534:10 ] || fail "what another user wrote"
    ! as_user stat "$mnt" --clients 2>"$work/said" || fail "another user may ask the server"
    grep -q "not allowed to ask" "$work/said" || fail "not the reason: $(cat "$work/said")"
    "$PERDURE" umount "$mnt"
    note "another user runs programs on root's mount"
fi
fsck_clean
echo "background, signals, kill, read-only, ordinary user"
