#!/usr/bin/env bash
# A user's process takes what segments it can get and is gone, but not its mappings: a child has them, or it has hung up and lives on. Then its file is removed and others write where it was, in the same server, after a clean unmount, and after the server was killed; or it is given to somebody else, who goes on writing it. The mappings show nothing of it, and the segments come back when the last one is gone.
# The other way round as well: what others have removed is not to be found in segments that were theirs.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
[ "$(id -u)" = 0 ] || fail "needs root, to be two users"
need setpriv python3
begin 128M
compile heir keeper
user=12345
chmod 755 "$work" "$programs" "$programs"/*
mkdir -m 777 "$mnt/home" "$work/signs"
as_user() { setpriv --reuid=$user --regid=$user --clear-groups "$@"; }
room() { df --output=avail -B1M "$mnt" | tail -n 1; }

# fill SECRET - another user's file, as large as it can be, with SECRET in each block; for the user there is no room left.
fill() {
    python3 - "$mnt/others" "$1" <<'PYTHON'
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.chown(sys.argv[1], 777, 777)
block = (sys.argv[2].encode() + b"\n").ljust(4096, b".") * 64
try:
    while True:
        os.write(file, block)
except OSError as error:
    assert error.errno == 28, error
PYTHON
}

# check HOW BETWEEN - a process takes its segments and goes by HOW; then comes BETWEEN, and others write.
check() {
    local how=$1 between=$2 secret="nobody else may read this, $RANDOM$RANDOM" size=48 before after heir
    # It moves to where nobody has segments mapped, and its own lie in up to two thirds of all.
    [ "$between" != given_away ] || size=24
    before=$(room)
    as_user dd if=/dev/urandom of="$mnt/home/own" bs=1M count=$size status=none
    rm -f "$work/signs"/*
    as_user "$programs/$program" "$how" "$mnt/home/own" "$work/signs/ready" "$work/signs/go" "$secret" >"$work/heir.log" &
    heir=$!
    for _ in {1..500}; do [ ! -e "$work/signs/ready" ] || break; sleep 0.02; done
    [ -e "$work/signs/ready" ] || fail "$program: $(cat "$work/heir.log")"
    if [ "$between" = given_away ]; then
        # A line in each block, which is written where the block is.
        chown 777:777 "$mnt/home/own"
        mv "$mnt/home/own" "$mnt/others"
        python3 -c 'import os, sys; f = os.open(sys.argv[1], os.O_WRONLY); [os.pwrite(f, sys.argv[2].encode() + b"\n", at) for at in range(0, os.fstat(f).st_size, 4096)]' "$mnt/others" "$secret"
    else
        rm "$mnt/home/own"
        "$between"
        fill "$secret"
    fi
    touch "$work/signs/go"
    for _ in {1..500}; do grep -qs "nothing of others\|FAIL" "$work/heir.log" && break; sleep 0.02; done
    wait "$heir" || true
    note "$how, $between: $(tr '\n' ';' <"$work/heir.log")"
    grep -q "nothing of others" "$work/heir.log" || fail "$how, $between: $(cat "$work/heir.log")"
    [ "$(grep -c "$secret" "$mnt/others")" = "$(($(stat -c %s "$mnt/others") / 4096))" ] || fail "$how, $between: somebody else's file changed"
    # What was kept from others is anybody's again, a second later at most.
    for _ in {1..10}; do
        rm "$mnt/others"
        sleep 0.5
        fill "$secret"
        after=$(($(stat -c %s "$mnt/others") >> 20))
        [ "$after" -lt $((before - 8)) ] || break
    done
    [ "$after" -ge $((before - 8)) ] || fail "$how, $between: others get $after MiB of $before"
    rm "$mnt/others"
}
# check_left BETWEEN - another user's files are removed; then comes BETWEEN, and a user's process looks for what they held in all segments that it can get.
check_left() {
    local between=$1 secret="what was removed, $RANDOM$RANDOM"
    fill "$secret"
    rm "$mnt/others"
    "$between"
    as_user dd if=/dev/urandom of="$mnt/home/own" bs=1M count=24 status=none
    # Blocks that are only reserved are mapped as well.
    as_user fallocate -l 48M "$mnt/home/own"
    : >"$work/signs/go"
    as_user "$programs/heir" hangs-up "$mnt/home/own" "$work/signs/ready" "$work/signs/go" "$secret" >"$work/heir.log" || true
    note "left behind, $between: $(tr '\n' ';' <"$work/heir.log")"
    grep -q "nothing of others" "$work/heir.log" || fail "left behind, $between: $(cat "$work/heir.log")"
    rm -f "$mnt/home/own" "$work/signs"/*
}
served_on() { :; }
unmounted() { umount_pool; mount_pool; }
killed() { kill_server; mount_pool; }
program=heir
for how in dies hangs-up; do
    for between in served_on unmounted killed given_away; do check $how $between; done
done
# It has nothing open or mapped any more, and keeps what it can all the same.
program=keeper
for between in served_on unmounted killed; do check pages $between; done
check names served_on
for between in served_on unmounted killed; do check_left $between; done
finish
echo "who has segments mapped sees nothing of others"
