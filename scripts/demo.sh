#!/usr/bin/env bash
# `make run`: a mounted file system with a real tree in it that survives kill -9, from nothing, in one command.
# Works for root and, with fusermount3, for an ordinary user. Leaves nothing mounted and nothing running.
#
#   PERDURE     a command that is built already
#   DEMO_DISK   directory on the disk to use; else that of the build, the home, or /var/tmp
#   DEMO_QUICK  1: figures of a blink, for tests
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1;32m' plain=$'\e[0m'; fi

die() { echo "demo: $*" >&2; exit 1; }
say() { printf '%s%-11s%s %s\n' "$bold" "$1" "$plain" "$2"; }

perdure=${PERDURE:-}
if [ -z "$perdure" ]; then
    scripts/install-tools.sh build run
    say building "release (some minutes the first time)"
    # With the library that `perdure run` and `perdure bench direct` load into programs.
    cargo build --quiet --release -p perdure-cli -p perdure-preload
    perdure=${CARGO_TARGET_DIR:-$repository/target}/release/perdure
fi
[ -c /dev/fuse ] || die "no /dev/fuse: load the module (modprobe fuse), or give the container --device /dev/fuse --cap-add SYS_ADMIN"
{ [ -r /dev/fuse ] && [ -w /dev/fuse ]; } || die "no access to /dev/fuse: ask for read and write access, or run as root"

file_system() { df --output=fstype "$1" | tail -n 1; }
free_kib() { df --output=avail -k "$1" 2>/dev/null | tail -n 1; }
has_room() { [ -w "$1" ] && [ "$(free_kib "$1")" -ge $(($2 * 1024)) ]; }
# Whether files in a directory lie on a disk, and can be written past the page cache.
writes_to_disk() {
    local probe status=0
    case $(file_system "$1") in tmpfs | ramfs) return 1 ;; esac
    probe=$(mktemp "$1/perdure-probe.XXXXXX") || return 1
    dd if=/dev/zero of="$probe" bs=4096 count=1 oflag=direct,dsync status=none 2>/dev/null || status=1
    rm -f "$probe"
    return $status
}

# choose_disk - a directory for a pool with a log; or says why there is none.
choose_disk() {
    local directory why='no disk with 2 GiB free'
    has_room /dev/shm 1100 || { echo "/dev/shm has not 1.1 GiB free for the pool's memory"; return 1; }
    for directory in ${DEMO_DISK:+"$DEMO_DISK"} "${CARGO_TARGET_DIR:-$repository/target}" "$HOME" /var/tmp; do
        has_room "$directory" 2048 || continue
        if writes_to_disk "$directory"; then echo "$directory"; return 0; fi
        why="$directory lies on $(file_system "$directory"), which is no disk or refuses O_DIRECT"
    done
    echo "$why"
    return 1
}

class=log class_options=()
if ! place=$(choose_disk); then
    say note "$place: the pool is volatile, so nothing of it survives a power failure"
    class=volatile class_options=(--volatile) place=/dev/shm
    if ! has_room $place 1100; then
        say note "it goes to ${TMPDIR:-/tmp}, a disk: slower than memory, and the same otherwise"
        place=${TMPDIR:-/tmp}
        has_room "$place" 1100 || die "$place has not 1.1 GiB free either; set TMPDIR to a place that has"
    fi
fi
work=$(mktemp -d "$place/perdure-demo.XXXXXX")
pool=$work/pool mnt=$work/mnt memory=''
mkdir "$mnt"

cleanup() {
    local status=$?
    trap - EXIT
    if grep -q " $mnt " /proc/self/mounts; then
        "$perdure" umount "$mnt" >/dev/null 2>&1 || fusermount3 -uz "$mnt" 2>/dev/null || umount -l "$mnt" || true
    fi
    # A killed server leaves the parts that programs had marked as append-only.
    chattr -R -f -a "$work" 2>/dev/null || true
    rm -rf "$work" ${memory:+"$memory"}
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

server() { "$perdure" stat "$mnt" --json | sed -n 's/^ *"process": *\([0-9]*\).*/\1/p' | head -n 1; }
nanoseconds() { date +%s%N; }
# The line of `perdure mount` without its paths, and of its brackets that on durability.
brief() { sed 's/^[^:]*: //; s/ (\(durable at [^)]*\))/, \1/; s/ ([^)]*)//g' <<<"$1"; }
kill_server() {
    local victim
    victim=$(server)
    kill -9 "$victim"
    while [ -e "/proc/$victim" ]; do sleep 0.01; done
    echo "server process $victim with kill -9"
}
mount_again() { say mounted "$(brief "$(RUST_LOG=error "$perdure" mount "$pool" "$mnt")")"; }

"$perdure" mkfs "$pool" --size 1G "${class_options[@]}" >"$work/said"
if [ $class = log ]; then memory=/dev/shm/perdure-$(od -An -tx1 -j16 -N16 "$pool/super" | tr -d ' \n'); fi
say pool "1 GiB in $pool, on $(file_system "$place")"
mounted=$("$perdure" mount "$pool" "$mnt")
say mounted "$(brief "$mounted")"

# This repository: what git tracks, or all but the build where it is no clone.
if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z; else find . -path ./target -prune -o -type f -printf '%P\0'; fi >"$work/files"
(xargs -0 sha256sum <"$work/files") | sort >"$work/sums"
files=$(wc -l <"$work/sums")
tar --null -T "$work/files" -cf "$work/tree"
start=$(nanoseconds)
tar -C "$mnt" -xf "$work/tree"
copied=$(nanoseconds)
say "copied in" "$files files of this repository in $(((copied - start) / 1000000)) ms"
bytes=$((256 << 20))
start=$(nanoseconds)
head -c $bytes /dev/zero >"$mnt/large"
sync "$mnt/large"
end=$(nanoseconds)
say "large file" "256 MiB and fsync, $((bytes * 1000 / (end - start))) MB/s through the mount"
zeros=$(sha256sum <"$mnt/large")

verify() {
    (cd "$mnt" && sha256sum --quiet -c "$work/sums") || die "checksums differ after $1"
    [ "$(sha256sum <"$mnt/large")" = "$zeros" ] || die "the large file differs after $1"
    say verified "$((files + 1)) checksums after $1, all the same"
}

# thousands RUNNER... - thousand writes of 4 KiB a second, by an unmodified program's clock.
thousands() {
    local perl python
    # shellcheck disable=SC2016
    perl='use Time::HiRes "time"; open F, ">", shift or die; $b = "x" x 4096; $t = time;
        for (1..50000) { syswrite(F, $b) == 4096 or die } printf "%.0f", 50 / (time - $t)'
    python='import os, sys, time; f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); b = b"x" * 4096; t = time.time()
for _ in range(50000): assert os.write(f, b) == 4096
print(round(50 / (time.time() - t)))'
    if command -v perl >/dev/null; then "$@" perl -e "$perl" "$mnt/written"; else "$@" python3 -c "$python" "$mnt/written"; fi
    [ "$(stat -c %s "$mnt/written")" = $((50000 * 4096)) ] || die "wrote $(stat -c %s "$mnt/written") bytes"
    rm "$mnt/written"
}
# A program writes to a pool with a log through the mount alone.
if [ $class = volatile ] && language=$(command -v perl || command -v python3); then
    by_mount=$(thousands env)
    by_library=$(thousands "$perdure" run "$pool" --)
    say "${language##*/}" "$by_mount thousand writes of 4 KiB a second through the mount, $by_library thousand under \`perdure run\`"
fi

killed=$(kill_server)
say killed "$killed; the mount is dead"
mount_again
verify "kill -9"
if [ $class = log ]; then
    killed=$(kill_server)
    # A power failure takes the memory; the disk alone is left.
    [ -d "$memory" ] || die "the pool had no memory in $memory"
    rm -rf "$memory"
    say "power cut" "simulated: $killed, and its memory is removed"
    mount_again
    verify "the power cut"
fi

if [ $class = log ] && command -v python3 >/dev/null; then
    say measuring "the pool against the file system that it lies on"
    mkdir "$mnt/compared" "$work/compared"
    python3 scripts/compare.py "${DEMO_QUICK:+0.}4" "$mnt/compared" perdure "$work/compared" "$(file_system "$work")" "$work/tree"
fi
"$perdure" umount "$mnt" >"$work/said"
"$perdure" fsck "$pool" >"$work/said" || { cat "$work/said"; die "fsck found something"; }
say fsck "clean"

command=${perdure#"$repository"/}
if [ $class = log ]; then
    cat <<END
Try it:  $command mkfs ~/pool --size 4G && mkdir -p ~/files && $command mount ~/pool ~/files
         $command mount ~/pool ~/files --durable call      (every call durable when it returns)
END
    exit 0
fi
[ -z "${DEMO_QUICK:-}" ] || exit 0
rm -rf "$pool"
say measuring "the library against bare memory and tmpfs"
"$perdure" bench ops --size 512M --pool "$work"
echo
cat <<END
Try it:  $command mkfs /dev/shm/mypool --size 4G --volatile && $command mount /dev/shm/mypool /mnt
         $command run /dev/shm/mypool -- PROGRAM
END
