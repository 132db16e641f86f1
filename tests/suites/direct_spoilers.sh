#!/usr/bin/env bash
# A user's process stores behind its file's end, never ends a write, and tries to fill the log.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
[ "$(id -u)" = 0 ] || fail "needs root, to be two users"
need setpriv python3
begin 128M
compile spoil
chmod 755 "$work" "$programs" "$programs"/*
mkdir -m 777 "$mnt/home"
own=$mnt/home/own
as_user() { setpriv --reuid=12345 --regid=12345 --clear-groups "$@"; }
# planted - a new file that ends within a block, and bytes behind its end.
planted() {
    rm -f "$own"
    head -c 70000 /dev/urandom | as_user tee "$own" >/dev/null
    as_user "$programs/spoil" tail "$own" >"$work/spoil.log" || fail "spoil tail: $(cat "$work/spoil.log")"
}
# only_zeros WHAT - what is behind the old end.
only_zeros() {
    local others
    others=$(tail -c +70001 "$own" | tr -d 'w\0' | wc -c)
    [ "$others" = 0 ] || fail "$1: $others bytes that were stored behind the end of the file show"
    note "$1: zeros"
}
grow() { truncate -s 71000 "$own"; }
write_behind() { printf w | dd of="$own" bs=1 seek=71000 conv=notrunc status=none; }
write_far() { printf w | dd of="$own" bs=1 seek=300000 conv=notrunc status=none; }
append() { printf w >>"$own"; truncate -s 80000 "$own"; }
reserve() { fallocate -l 90000 "$own"; }
# A write of a whole block, to which the page cache has no say.
past_the_cache() { head -c 4096 /dev/zero | tr '\0' w | dd of="$own" bs=4096 seek=18 oflag=direct conv=notrunc status=none; }
directly() {
    direct python3 - "$own" <<'PYTHON'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for _ in range(200):
    os.pwrite(file, os.pread(file, 64, 0), 0)
os.pwrite(file, b"w", 71000)
os.pwrite(file, b"w", 90000)
PYTHON
}
for way in grow write_behind write_far append reserve past_the_cache directly; do
    planted
    $way
    only_zeros "$way"
    planted
    chown 777:777 "$own"
    $way
    only_zeros "given away, $way"
done
planted
umount_pool
fsck_clean
note "fsck: no fault"
mount_pool
grow
only_zeros "grow, in the next mount"

# Twice as many messages would be twice as long.
rm -f "$own"
head -c 70000 /dev/urandom | as_user tee "$own" >/dev/null
before=$(stat -c %s "$log")
as_user "$programs/spoil" log "$own" 3000 >"$work/spoil.log" || fail "spoil log: $(cat "$work/spoil.log")"
grown=$(($(stat -c %s "$log") - before))
[ "$grown" -lt 20000 ] || fail "a user's process fills the log: $grown bytes; $(tail -n 2 "$log")"
grep -q "nonsense" "$log" || fail "the log does not say that records make no sense"
note "3,000 strange requests and 3,000 records that make no sense: $grown bytes of log"

# late HOW - the server ends by HOW while a process says that a write has begun. The process leaves
# all to a child. The pool opens after 5 s; a store of the child then changes no file of others.
late() {
    local how=$1 begin heir secret="of others, $RANDOM$RANDOM" sums
    rm -f "$own" "$work/signs"/*
    head -c 8000000 /dev/urandom | as_user tee "$own" >/dev/null
    setsid setpriv --reuid=12345 --regid=12345 --clear-groups "$programs/spoil" late "$own" "$work/signs" >"$work/late.log" 2>&1 &
    heir=$!
    for _ in {1..500}; do [ ! -e "$work/signs/ready" ] || break; sleep 0.02; done
    [ -e "$work/signs/ready" ] || fail "spoil late: $(cat "$work/late.log")"
    "$how"
    wait "$heir" || true
    begin=$SECONDS
    "$PERDURE" fsck "$pool" >"$work/fsck.log" 2>&1 || fail "$how: fsck ends with $?: $(cat "$work/fsck.log")"
    grep -q "no process can be seen" "$work/fsck.log" || fail "$how: fsck does not say what it waited for: $(cat "$work/fsck.log")"
    ! grep -q "$heir\|kill" "$work/fsck.log" || fail "$how: who is gone is named: $(cat "$work/fsck.log")"
    [ $((SECONDS - begin)) -lt 12 ] || fail "$how: fsck waits $((SECONDS - begin)) s"
    begin=$SECONDS
    touch "$work/signs/scribble"
    mount_pool
    [ $((SECONDS - begin)) -lt 4 ] || fail "$how: the pool is waited for again, $((SECONDS - begin)) s"
    # All that there is, others' files and the user's.
    as_user dd if=/dev/zero of="$mnt/home/more" bs=1M count=8 status=none
    while yes "$secret" | head -c 1000000 >>"$mnt/others" 2>/dev/null; do :; done
    sums=$(sha256sum "$mnt/others")
    touch "$work/signs/go"
    for _ in {1..500}; do ! grep -qs stored "$work/late.log" || break; sleep 0.02; done
    grep -q stored "$work/late.log" || fail "$how: the child has stored nothing: $(cat "$work/late.log")"
    [ "$(sha256sum "$mnt/others")" = "$sums" ] || fail "$how: what a user stores late changes another's file"
    pkill -9 -s "$heir" || fail "$how: there is no child"
    remount
    [ "$(sha256sum "$mnt/others")" = "$sums" ] || fail "$how: what a user stored late changed another's file"
    umount_pool
    fsck_clean
    mount_pool
    note "$how below a process that does not end its write: opened, and only its user's files could change"
    rm -f "$mnt/others" "$mnt/home/more" "$work/signs"/*
}
mkdir -m 777 "$work/signs"
killed() { kill_server; umount -l "$mnt"; }
late killed
late umount_pool
finish
echo "what a user stores where it does not belong shows nowhere"
