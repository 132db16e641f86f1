#!/usr/bin/env bash
# A full pool: overwriting and removing still work, nothing is lost, space comes back, also after the server was killed.
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "fills its file system: it needs its own pool"
make_pool 128M
mount_pool
head -c 4M /dev/urandom >"$work/kept"
cp "$work/kept" "$mnt/kept"
mkdir "$mnt/many"

# fill - until not one more block fits.
fill() {
    for size in 1M 64k 4k; do
        dd if=/dev/zero of="$mnt/filler.$size" bs=$size oflag=append conv=notrunc status=none 2>"$work/dd.log" && fail "the pool never fills"
        grep -q "No space left" "$work/dd.log" || { cat "$work/dd.log"; fail "a full pool says something else"; }
    done
}
overwrite() {
    head -c 4M /dev/urandom >"$work/kept"
    for block in {0..1023}; do
        dd if="$work/kept" of="$mnt/kept" bs=4k count=1 skip="$block" seek="$block" conv=notrunc status=none || fail "overwriting block $block of a full pool"
    done
    cmp "$work/kept" "$mnt/kept"
}
fill
[ "$(df --output=avail "$mnt" | tail -n 1)" -lt 64 ] || fail "df still promises space: $(df "$mnt" | tail -n 1)"
overwrite
note "full, overwritten"
number=0
while [ $number -lt 100000 ] && : 2>/dev/null >"$mnt/many/name-$number"; do number=$((number + 1)); done
note "$number empty files still fitted"
remount
cmp "$work/kept" "$mnt/kept" || fail "content after the kill"
[ "$(find "$mnt/many" -type f | wc -l)" = $number ] || fail "names after the kill"
overwrite
rm -r "$mnt/many" || fail "rm in a full pool"
rm "$mnt/filler.4k" "$mnt/filler.64k" || fail "rm in a full pool"
truncate -s 1M "$mnt/filler.1M" || fail "truncate in a full pool"
head -c 32M /dev/urandom >"$mnt/again" || fail "space did not come back"
cmp "$work/kept" "$mnt/kept"
umount_pool
fsck_clean
echo "filled, overwritten, killed, emptied"
