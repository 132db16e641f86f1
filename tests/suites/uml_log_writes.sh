#!/usr/bin/env bash
# A pool with a log on disks of device-mapper, in User-Mode Linux. dm-log-writes below ext4 records
# all writes; replayed to each flush, also with torn writes behind it, the pool has all that was
# acknowledged. dm-flakey lets writes fail, or drops them. Two deliberate bugs prove that a lost
# sync is noticed. The suite is skipped where the lab of User-Mode Linux is missing.
#
#   OPERATIONS (60) and MOMENTS (60) of each policy   SEED (1)
#   UMLLAB      folder of the lab (default: shared/umllab beside this repository)
#   UMLLAB_DIR  where its setup.sh puts the kernel (default: target/umllab)
#   BUGGY       a command with deliberate bugs (default: the tests' build)
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repository"
target=${CARGO_TARGET_DIR:-$repository/target}
lab=${UMLLAB:-$repository/../shared/umllab}
PERDURE=$(realpath "${PERDURE:-$target/release/perdure}")
BUGGY=$(realpath "${BUGGY:-$target/debug/perdure}")
export UMLLAB_DIR=${UMLLAB_DIR:-$target/umllab}

fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 0; }
[ -x "$lab/run.sh" ] || skip "no lab of User-Mode Linux in $lab (UMLLAB)"
[ "$(id -u)" = 0 ] || skip "User-Mode Linux reads this machine's files with the rights of root"
[ -e "$UMLLAB_DIR/ready" ] || "$lab/setup.sh" || skip "$lab/setup.sh could not fetch User-Mode Linux"
work=$(mktemp -d /dev/shm/perdure-uml.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# guest COMMAND SCRIPT ARGUMENT... - runs a script with new disks; COMMAND is perdure. The lab ends
# with 125 when its kernel itself dies, as it does if it is stopped: then once more.
guest() {
    local command=$1 script=$2 status try
    shift 2
    for try in 1 2 3 4; do
        rm -f "$work"/disk.*
        status=0
        "$lab/run.sh" -m 512 -t 900 -e PERDURE="$command" -e BUG="${BUG:-}" -d "$work/disk.a:96M" -d "$work/disk.b:1G" \
            -d "$work/disk.c:96M" -d "$work/disk.d:64M" "$repository/tests/uml/$script" "$@" >"$work/output" 2>&1 || status=$?
        [ $status = 125 ] || break
        echo "-- User-Mode Linux ended by itself, try $try"
    done
    return $status
}
# passes WHAT COMMAND SCRIPT ARGUMENT...
passes() {
    local what=$1
    shift
    guest "$@" || { cat "$work/output"; fail "$what (SEED=$seed)"; }
    echo "-- $what: $(tail -n 1 "$work/output")"
}

# notices BUG [OPTION of the mount...]
notices() {
    local bug=$1
    shift
    if BUG=$bug guest "$BUGGY" log_writes.sh fsync "$seed" "$operations" "$moments" "$@"; then fail "the bug $bug is not noticed"; fi
    grep -q '^LOST' "$work/output" || { cat "$work/output"; fail "the bug $bug: another failure than a loss"; }
    echo "-- the bug $bug is noticed: $(grep -o '^LOST[^:]*' "$work/output")"
}

seed=${SEED:-1} operations=${OPERATIONS:-60} moments=${MOMENTS:-60}
passes "policy fsync" "$PERDURE" log_writes.sh fsync "$seed" "$operations" "$moments"
passes "policy call" "$PERDURE" log_writes.sh call "$((seed + 1))" "$operations" "$moments" --durable call
passes "a failing disk" "$PERDURE" errors.sh "$seed"
# With the usual bound the log is written before the mark that says that a sync returned.
notices AcknowledgeBeforeSync --durable fsync:5s
notices TrimBeforeFlush
echo "each moment of both policies is recovered, and both bugs are noticed"
