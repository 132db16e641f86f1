#!/usr/bin/env bash
# What goes wrong, and what the command says: every line gives the exit code and words of the message. Nothing panics,
# hangs or is written to a pool that was refused.
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "needs its own pools"
[ "$(id -u)" = 0 ] || fail "needs root: it hides /dev/fuse and becomes nobody"
checks=0

# expect STATUS TEXT COMMAND... - within 30 s, with exactly this exit code, and TEXT in what it says.
expect() {
    local status=$1 text=$2 got=0
    shift 2
    timeout 30 "$@" >"$work/said" 2>&1 </dev/null || got=$?
    checks=$((checks + 1))
    [ "$got" = "$status" ] || { cat "$work/said"; fail "exit code $got instead of $status: $*"; }
    [ -z "$text" ] || grep -qi -- "$text" "$work/said" || { cat "$work/said"; fail "does not say '$text': $*"; }
    ! grep -q "panicked" "$work/said" || { cat "$work/said"; fail "panicked: $*"; }
}
perdure() { "$PERDURE" "$@"; }
export -f perdure
export PERDURE
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }

# refused STATUS FSCK TEXT - the pool $bad is refused by mount, stat and fsck, and not written to.
refused() {
    local before
    before=$(sums "$bad")
    expect "$1" "$3" "$PERDURE" mount "$bad" "$mnt"
    expect "$1" "$3" "$PERDURE" cp "$bad:/file" "$work/out"
    expect "$2" "$3" "$PERDURE" fsck "$bad"
    [ "$(sums "$bad")" = "$before" ] || fail "a refused pool was written to"
}
damaged() { rm -rf "$work/bad"; cp -r --sparse=always "$pool" "$work/bad"; bad=$work/bad; }
poke() { printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
# spoil FILE OFFSET - inverts a byte: whatever it was, it is another one now.
spoil() { poke "$1" "$2" "\\x$(printf '%02x' $((0xff ^ 0x$(od -An -tx1 -j "$2" -N 1 "$1" | tr -d ' '))))"; }

note "making a pool"
expect 2 "size" "$PERDURE" mkfs "$pool" --size lots --volatile
expect 1 "too few" "$PERDURE" mkfs "$pool" --size 4K --volatile
expect 1 "free" "$PERDURE" mkfs "$pool" --size 900G --segment-size 1G --volatile
expect 1 "segments; use --segment-size 268435456" "$PERDURE" mkfs "$pool" --size 1T --segment-size 1M --volatile
expect 1 "at most 8796093022208" "$PERDURE" mkfs "$pool" --size 100T --segment-size 2G --volatile
expect 2 "64K to 2G" "$PERDURE" mkfs "$pool" --size 64M --segment-size 4G --volatile
expect 2 "64K to 2G" "$PERDURE" mkfs "$pool" --size 64M --segment-size 3M --volatile
expect 1 "--volatile" "$PERDURE" mkfs "$pool" --size 64M
[ ! -e "$pool" ] || fail "a refused mkfs left something behind"
expect 0 "volatile" "$PERDURE" mkfs "$pool" --size 64M --segment-size 4M --volatile
expect 1 "exists\|already" "$PERDURE" mkfs "$pool" --size 64M --volatile
echo content >"$work/file"
expect 0 "" "$PERDURE" cp "$work/file" "$pool:/file"
expect 1 "name" "$PERDURE" cp "$work/file" "$pool:/$(printf 'n%.0s' {1..256})"
expect 1 "none" "$PERDURE" cp "$work/none" "$pool:/x"
expect 1 "none" "$PERDURE" cp "$pool:/none" "$work/out"

note "pools that are none"
expect 3 "no such pool" "$PERDURE" mount "$work/none" "$mnt"
expect 3 "no such pool" "$PERDURE" stat "$work/none"
expect 8 "no such pool" "$PERDURE" fsck "$work/none"
mkdir "$work/bad"
bad=$work/bad
echo "some text" >"$bad/other"
refused 3 8 "not a Perdure pool"
head -c 65536 /dev/urandom >"$bad/super"
refused 3 8 "not a Perdure pool"
expect 16 "usage" "$PERDURE" fsck
expect 2 "usage" "$PERDURE" mount "$pool"

note "damaged pools"
header=$(stat -c %s "$pool/super")
for copy in 0 $((header - 4096)); do
    damaged
    spoil "$bad/super" $((copy + 20))
    expect 4 "superblock" "$PERDURE" fsck "$bad"
    expect 1 "superblock" "$PERDURE" fsck --repair -y "$bad"
    expect 0 "" "$PERDURE" fsck "$bad"
done
damaged
poke "$bad/super" 8 '\x63\0\0\0'
poke "$bad/super" $((header - 4096 + 8)) '\x63\0\0\0'
refused 3 8 "version 99"
damaged
spoil "$bad/super" 20
spoil "$bad/super" $((header - 4096 + 20))
refused 3 8 "superblocks are damaged"
damaged
truncate -s -4096 "$bad/segment-0001"
refused 3 4 "segment-0001"
damaged
rm "$bad/segment-0002"
refused 3 4 "segment-0002"

note "mount points"
expect 1 "does not exist" "$PERDURE" mount "$pool" "$work/nowhere"
expect 1 "not a directory" "$PERDURE" mount "$pool" "$work/file"
mkdir "$work/other"
mount -t tmpfs none "$work/other"
expect 4 "busy" "$PERDURE" mount "$pool" "$work/other"
umount "$work/other"
expect 1 "no perdure pool" "$PERDURE" umount "$mnt"
mount_pool
expect 4 "in use" "$PERDURE" mount "$pool" "$work/other"
expect 8 "in use" "$PERDURE" fsck "$pool"
expect 4 "in use" "$PERDURE" cp "$pool:/file" "$work/out"
(cd "$mnt" && expect 4 "in use" "$PERDURE" umount "$mnt")

note "programs on a mount"
expect 3 "no such pool" "$PERDURE" run "$work/none" -- true
expect 2 "usage" "$PERDURE" run "$pool" true
expect 2 "usage" "$PERDURE" run "$pool" --
expect 4 "is mounted at $mnt, not at $work/other" "$PERDURE" run "$pool" --at "$work/other" -- true
expect 127 "none: cannot be run" "$PERDURE" run "$pool" -- "$work/none"
expect 126 "file: cannot be run" "$PERDURE" run "$pool" -- "$work/file"
expect 137 "" "$PERDURE" run "$pool" --at "$mnt" -- sh -c 'kill -9 $$'
# shellcheck disable=SC2016
expect 5 "$mnt" "$PERDURE" run "$pool" -- sh -c 'echo "$PERDURE_MNT"; exit 5'
expect 1 "nowhere: cannot find the library" env PERDURE_PRELOAD="$work/nowhere" "$PERDURE" run "$pool" -- true
install -m 755 "$PERDURE" "$work/alone"
expect 1 "cargo build --release -p perdure-preload" "$work/alone" run "$pool" -- true
rm "$work/alone"

note "on the mount"
name=$(printf 'n%.0s' {1..256})
for command in "touch" "mkdir" "ln -s x" "mv $mnt/file"; do
    # shellcheck disable=SC2086
    expect 1 "name too long" $command "$mnt/$name"
done
touch "$mnt/${name:1}"
chmod 600 "$mnt/file"
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
expect 1 "permission denied" "${nobody[@]}" cat "$mnt/file"
expect 1 "permission denied" "${nobody[@]}" touch "$mnt/new"
umount_pool
fsck_clean

note "without permission, without /dev/fuse"
install -m 755 "$PERDURE" "$work/program"
chmod 700 "$pool"
expect 1 "permission denied" "${nobody[@]}" "$work/program" mount "$pool" "$mnt"
expect 8 "permission denied" "${nobody[@]}" "$work/program" fsck "$pool"
hidden=$(mktemp -d)
cp -r --sparse=always "$pool" "$hidden/pool"
mkdir "$hidden/mnt"
# A /dev of its own, with nothing but null.
hide() { unshare -m bash -c 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"' hide "$@"; }
export -f hide
expect 1 "modprobe fuse" bash -c 'hide "$@"' hide "$PERDURE" mount "$hidden/pool" "$hidden/mnt"
rm -rf "$hidden"
echo "$checks messages and exit codes"
