#!/usr/bin/env bash
# The server is killed 50 times under random load from three processes. After each remount every acknowledged operation
# is there, the one that was under way is there as a whole or not at all, and fsck finds nothing.
#
#   ROUNDS (50)   SEED (1)   SKIP  operations not to use, for file systems that lack them
#   POWER_CUTS=1  each second kill takes the memory of a pool with a log, too: for --durable call
source "$(dirname "$0")/../lib.sh"
need python3
[ -z "${1:-}" ] || fail "kills the server: it needs its own mount"
begin 1G
load=$repository/tests/load/files.py
seed=${SEED:-1} total=0 cuts=0
RANDOM=$seed
python3 "$load" prepare "$mnt" 3

for ((round = 1; round <= ${ROUNDS:-50}; round++)); do
    workers=()
    for worker in 0 1 2; do
        python3 "$load" load "$mnt" $worker "$work/state.$worker" "$seed.$round" &
        workers+=($!)
    done
    until [ "$(find "$work" -maxdepth 1 -name 'state.*.ready' | wc -l)" = 3 ]; do sleep 0.02; done
    rm "$work"/state.*.ready
    sleep "$(printf '0.%03d' $((100 + RANDOM % 900)))"
    kill_server
    if [ -n "${POWER_CUTS:-}" ] && [ $((round % 2)) = 0 ]; then
        [ -d "$memory" ] || fail "round $round: no memory in $memory"
        rm -rf "$memory"
        cuts=$((cuts + 1))
    fi
    for worker in "${workers[@]}"; do wait "$worker" || fail "round $round: the load saw more than a dead mount"; done
    mount_pool
    for worker in 0 1 2; do
        count=$(python3 "$load" check "$mnt" $worker "$work/state.$worker") || fail "round $round (SEED=$seed): see above"
        total=$((total + count))
    done
    umount_pool
    fsck_clean
    mount_pool
done
[ "$total" -ge $((${ROUNDS:-50} * 50)) ] || fail "only $total operations were acknowledged: no load"
finish
echo "$((round - 1)) kills${POWER_CUTS:+, $cuts of them with the memory}, $total acknowledged operations, none lost"
