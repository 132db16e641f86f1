#!/usr/bin/env bash
# POSIX semantics: pjdfstest 0.2.2, all cases, as root.
source "$(dirname "$0")/../lib.sh"
[ "$(id -u)" = 0 ] || fail "needs root: it switches users and makes device nodes"
[ -x "$tools/pjdfstest-0.2.2" ] || fail "no pjdfstest: run scripts/install-tools.sh test"
begin 1G "${1:-}"

# mount(8) would ask mount.fuse to start a file system of that name when told to remount; -i asks the kernel itself.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$work/bin/mount"
chmod +x "$work/bin/mount"
PATH=$work/bin:$PATH

# suite REMOUNT [PATTERN] - the read-only cases need the whole file system idle, so they run in a process of their own.
suite() {
    sed "s/^allow_remount = .*/allow_remount = $1/" "$repository/tests/pjdfstest.toml" >"$work/config.toml"
    RUST_BACKTRACE=0 "$tools/pjdfstest-0.2.2" -c "$work/config.toml" -p "$dir" ${2:+"$2"} >"$work/out" 2>&1 && status=0 || status=$?
    sed -i 's/\x1b\[[0-9;]*m//g' "$work/out"
    awk '/ ok$/ {show = 0} /(FAILED|skipped|UNEXPECTEDLY)$/ {show = !/erofs.*skipped/} show' "$work/out"
    passed=$((passed + $(grep -c ' ok$' "$work/out")))
    [ "$status" = 0 ] || fail "pjdfstest"
    others=$(awk '/ skipped$/ && !/erofs/ {print $1}' "$work/out" | grep -vxF "$cannot_run" || true)
    [ -z "$others" ] || fail "skipped without a reason known here: $others"
}
# How many names an inode may have is asked of the C library, which knows no number for FUSE. (It is 4,294,967,294.)
cannot_run=link::link_count_max
passed=0
suite true erofs
suite false
finish
echo "$passed of 398 cases passed"
