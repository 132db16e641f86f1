#!/usr/bin/env bash
# `make run`: a mounted file system with a real tree in it that survives kill -9, from nothing, in one command.
# Works for root and, with fusermount3, for an ordinary user. Leaves nothing mounted and nothing running.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

die() { echo "demo: $*" >&2; exit 1; }
say() { printf '%-11s %s\n' "$1" "$2"; }

# PERDURE names a command that is built already: the tests have one.
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

# The pool needs shared memory of its size: what a laptop has instead of persistent memory.
place=/dev/shm
free_kib() { df --output=avail -k "$1" 2>/dev/null | tail -n 1; }
if [ ! -w "$place" ] || [ "$(free_kib $place)" -lt $((1100 * 1024)) ]; then
    say note "$place has not 1.1 GiB free, so the pool goes to ${TMPDIR:-/tmp}, a disk: slower, and the same otherwise"
    place=${TMPDIR:-/tmp}
    [ "$(free_kib "$place")" -ge $((1100 * 1024)) ] || die "$place has not 1.1 GiB free either; set TMPDIR to a place that has"
fi
work=$(mktemp -d "$place/perdure-demo.XXXXXX")
pool=$work/pool mnt=$work/mnt
mkdir "$mnt"

cleanup() {
    local status=$?
    trap - EXIT
    if grep -q " $mnt " /proc/self/mounts; then
        "$perdure" umount "$mnt" >/dev/null 2>&1 || fusermount3 -uz "$mnt" 2>/dev/null || umount -l "$mnt" || true
    fi
    # A killed server leaves the parts that programs had marked as append-only.
    chattr -R -f -a "$work" 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

server() { "$perdure" stat "$mnt" --json | sed -n 's/^ *"process": *\([0-9]*\).*/\1/p' | head -n 1; }
nanoseconds() { date +%s%N; }
# The line of `perdure mount` without its paths and brackets.
brief() { sed 's/^[^:]*: //; s/ ([^)]*)//g' <<<"$1"; }

"$perdure" mkfs "$pool" --size 1G --volatile >"$work/said"
say pool "1 GiB in $pool"
mounted=$("$perdure" mount "$pool" "$mnt")
say mounted "$(brief "$mounted")"

# This repository: what git tracks, or all but the build where it is no clone.
if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z; else find . -path ./target -prune -o -type f -printf '%P\0'; fi >"$work/files"
(xargs -0 sha256sum <"$work/files") | sort >"$work/sums"
files=$(wc -l <"$work/sums")
start=$(nanoseconds)
tar --null -T "$work/files" -cf - | tar -C "$mnt" -xf -
copied=$(nanoseconds)
say "copied in" "$files files of this repository in $(((copied - start) / 1000000)) ms, each durable as it was written"
bytes=$((256 << 20))
start=$(nanoseconds)
head -c $bytes /dev/zero >"$mnt/large"
end=$(nanoseconds)
say "large file" "256 MiB at $((bytes * 1000 / (end - start))) MB/s through the mount"
zeros=$(sha256sum <"$mnt/large")

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
if language=$(command -v perl || command -v python3); then
    by_mount=$(thousands env)
    by_library=$(thousands "$perdure" run "$pool" --)
    say "${language##*/}" "$by_mount thousand durable writes of 4 KiB a second through the mount, $by_library thousand under \`perdure run\`"
fi

victim=$(server)
kill -9 "$victim"
while [ -e "/proc/$victim" ]; do sleep 0.01; done
say killed "server process $victim with kill -9; the mount is dead"
mounted=$(RUST_LOG=error "$perdure" mount "$pool" "$mnt")
say mounted "$(brief "$mounted")"
(cd "$mnt" && sha256sum --quiet -c "$work/sums") || die "checksums differ after kill -9"
[ "$(sha256sum <"$mnt/large")" = "$zeros" ] || die "the large file differs after kill -9"
say verified "$((files + 1)) checksums after kill -9, all the same"
"$perdure" umount "$mnt" >"$work/said"
"$perdure" fsck "$pool" >"$work/said" || { cat "$work/said"; die "fsck found something"; }
say fsck "clean"

[ -z "${DEMO_WITHOUT_FIGURES:-}" ] || exit 0
rm -rf "$pool"
say measuring "the library against bare memory and tmpfs"
"$perdure" bench ops --size 512M --pool "$work"
echo
command=${perdure#"$repository"/}
cat <<END
Try it:  $command mkfs /dev/shm/mypool --size 4G --volatile && $command mount /dev/shm/mypool /mnt
         $command run /dev/shm/mypool -- PROGRAM
END
