#!/usr/bin/env bash
# Runs xfstests' group generic/quick on mounts of two pools in shared memory, and compares the
# failures with `expected`. Needs root, and makes the link /sbin/mount.fuse.perdure while it runs.
# usage: tests/xfstests/run.sh [CHECKOUT [TEST...]]   CHECKOUT: built (default: $XFSTESTS)
#   PERDURE        the command under test (default: the release build)
#   XFSTESTS_LOG   a file for the output of xfstests
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PERDURE=$(realpath "${PERDURE:-$here/../../target/release/perdure}")
suite=${1:-${XFSTESTS:-}}
[ -n "$suite" ] || { echo "skipped: XFSTESTS names no built checkout of xfstests"; exit 0; }
suite=$(realpath "$suite")
shift $(($# > 0))
if ! [ -x "$suite/src/lstat64" ]; then echo "no built xfstests in $suite: run make there"; exit 1; fi
[ "$(id -u)" = 0 ] || { echo "xfstests needs root"; exit 1; }
# Users whose names the tests have.
for user in fsgqa 123456-fsgqa fsgqa2; do
    id "$user" >/dev/null 2>&1 || useradd --badname -m "$user" 2>/dev/null || useradd --badnames -m "$user"
done
work=$(mktemp -d /dev/shm/perdure-xfstests.XXXXXX)
# Other users reach the mounts.
chmod 755 "$work"
link=/sbin/mount.fuse.perdure
had_link=$(readlink "$link" || true)
cleanup() {
    umount "$work/mnt" "$work/scratch" 2>/dev/null || true
    if [ -n "$had_link" ]; then ln -sfn "$had_link" "$link"; else rm -f "$link"; fi
    rm -rf "$work"
}
trap cleanup EXIT
ln -sfn "$PERDURE" "$link"
mkdir "$work/mnt" "$work/scratch"
for pool in test scratch; do "$PERDURE" mkfs "$work/pool-$pool" --size 2G --volatile >/dev/null; done
export FSTYP=fuse FUSE_SUBTYP=.perdure
export TEST_DEV=$work/pool-test TEST_DIR=$work/mnt SCRATCH_DEV=$work/pool-scratch SCRATCH_MNT=$work/scratch
export MOUNT_OPTIONS="-o log=$work/server.log" TEST_FS_MOUNT_OPTS="-o log=$work/server.log" RESULT_BASE=$work/results
# xfstests expects the type without the subtype from df, and unmounts by the name of the device,
# which umount takes for a mount point if it is a directory.
mkdir "$work/bin"
printf '#!/bin/sh\n%s "$@" | sed s/fuse.perdure/fuse/\n' "$(command -v df)" >"$work/bin/df"
cat >"$work/bin/umount" <<END
#!/bin/bash
arguments=()
for argument; do
    case \$argument in
    "$TEST_DEV") argument=$TEST_DIR ;;
    "$SCRATCH_DEV") argument=$SCRATCH_MNT ;;
    esac
    arguments+=("\$argument")
done
exec $(command -v umount) "\${arguments[@]}"
END
chmod +x "$work/bin/df" "$work/bin/umount"
export PATH=$work/bin:$PATH
mount -t fuse.perdure -o log="$work/server.log" "$TEST_DEV" "$TEST_DIR"
cd "$suite"
# Each line of `excluded` is a test that is not run; of `expected`, one that fails; with the reason.
names() { sed -n 's/^\(generic\/[0-9]*\).*/\1/p' "$here/$1"; }
names excluded >"$work/excluded"
# These two lift a limit that they have set themselves.
if ! (ulimit -f 1024 && ulimit -f unlimited) 2>/dev/null; then
    echo "generic/394 and 564 are not run: this process may not raise a limit of file sizes (CAP_SYS_RESOURCE)"
    printf 'generic/%s\n' 394 564 >>"$work/excluded"
fi
if [ $# -gt 0 ]; then tests=("$@"); else tests=(-g generic/quick); fi
./check -fuse -E "$work/excluded" "${tests[@]}" 2>&1 | tee "$work/log" || true
cp "$work/log" "${XFSTESTS_LOG:-/dev/null}" || true
grep -qE '^(Passed all|Failed) [0-9]+' "$work/log" || { echo "xfstests ended early"; exit 1; }
failed=$(sed -n 's/^Failures: //p' "$work/log" | tail -n 1)
unexpected=$(for name in $failed; do names expected | grep -qx "$name" || echo "$name"; done)
passed=$(grep -c '^generic/[0-9]* .* [0-9]*s$' "$work/log" || true)
not_run=$(grep -c '\[not run\]' "$work/log" || true)
echo "passed $passed, not run $not_run, failed:${failed:+ $failed}"
if grep -n panicked "$work/server.log"; then echo "a server panicked"; exit 1; fi
if [ -n "$unexpected" ]; then
    for name in $unexpected; do diff -u "$suite/tests/$name.out" "$work/results/$name.out.bad" || true; done
    tail -n 20 "$work/server.log"
    echo "unexpected: ${unexpected//$'\n'/ }"
    exit 1
fi
