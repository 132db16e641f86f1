#!/usr/bin/env bash
# One bit is flipped somewhere in a pool full of metadata, many times. Either fsck names the damage, or the mounted tree
# is what it was; fsck, its repair and the mount never panic, hang or crash, and a repaired pool is clean.
#
#   FLIPS (150)   SEED (1)   FIRST (1): where to go on
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "damages its pool"
need python3
"$PERDURE" mkfs "$pool" --size 24M --segment-size 1M --journals 2 --volatile >>"$log" 2>&1
mount_pool
python3 "$repository/tests/load/flip.py" fill "$mnt"
python3 "$repository/tests/load/flip.py" list "$mnt" >"$work/expected"
umount_pool
fsck_clean
mv "$pool" "$work/original"
seed=${SEED:-1} named=0 harmless=0 repaired=0

# run STATUSES COMMAND... - one of these exit codes, within 30 s, without a panic.
run() {
    local statuses=" $1 " status=0
    shift
    timeout 30 "$@" >"$work/said" 2>&1 || status=$?
    [[ $statuses == *" $status "* ]] && ! grep -q "panicked" "$work/said" && return $status
    tail -n 5 "$work/said"
    fail "flip $flip of seed $seed ($place): exit code $status of: $*"
}
for ((flip = ${FIRST:-1}; flip <= ${FLIPS:-150}; flip++)); do
    rm -rf "$pool"
    cp -r --sparse=always "$work/original" "$pool"
    place=$(python3 "$repository/tests/load/flip.py" flip "$pool" "$seed.$flip")
    if run "0 4 8" "$PERDURE" fsck "$pool"; then
        mount_pool
        python3 "$repository/tests/load/flip.py" list "$mnt" >"$work/found" || true
        diff "$work/expected" "$work/found" || fail "flip $flip of seed $seed ($place): damage that fsck does not see"
        umount_pool
        harmless=$((harmless + 1))
        continue
    fi
    named=$((named + 1))
    # What fsck names must also not confuse a mount, whether it is refused or not.
    if run "0 1 3" "$PERDURE" mount --log "$log" "$pool" "$mnt"; then
        python3 "$repository/tests/load/flip.py" list "$mnt" >/dev/null 2>&1 || true
        run "0 1" "$PERDURE" umount "$mnt" || true
    fi
    if run "0 1 4 8" "$PERDURE" fsck --repair -y "$pool" || [ $? = 1 ]; then
        run "0" "$PERDURE" fsck "$pool"
        repaired=$((repaired + 1))
    fi
done
[ $named -gt $((${FLIPS:-150} / 10)) ] || fail "only $named flips were noticed: the pool holds too little metadata"
echo "$((flip - 1)) flips: $named named by fsck ($repaired repaired), $harmless without effect on names and attributes"
