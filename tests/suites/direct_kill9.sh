#!/usr/bin/env bash
# Processes that write directly are killed, then the server below two of them, at random times.
# A process without the library finds all acknowledged writes, each as a whole or not at all; fsck
# finds nothing.
#
#   CLIENT_KILLS (500)   SERVER_KILLS (50)   SEED (1)
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "kills the server: it needs its own mount"
begin 512M
compile steady
seed=${SEED:-1}
client_kills=${CLIENT_KILLS:-500} server_kills=${SERVER_KILLS:-50}
RANDOM=$seed

# Two at a time, each with its own file.
watch_clients
for one in a b; do
    "$programs/steady" kill "$dir/clients.$one" "$work/state.$one" $((client_kills / 2)) "$preload" "$seed$([ $one = a ] || echo 7)" >"$work/kills.$one" 2>&1 &
    eval "kills_$one=$!"
done
# shellcheck disable=SC2154
wait "$kills_a" || { cat "$work"/kills.*; fail "kills of processes (SEED=$seed)"; }
# shellcheck disable=SC2154
wait "$kills_b" || { cat "$work"/kills.*; fail "kills of processes (SEED=$seed)"; }
cat "$work"/kills.*
was_direct "killed processes" 0 $((client_kills * 50)) steady
umount_pool
fsck_clean

mount_pool
watch_again
declare -A writes=([c]=0 [d]=0)
for one in c d; do "$programs/steady" fill "$mnt/server.$one" "$work/state.$one" || fail "fill"; done
for ((round = 1; round <= server_kills; round++)); do
    writers=()
    for one in c d; do
        LD_PRELOAD=$preload "$programs/steady" write "$mnt/server.$one" "$work/state.$one" "$RANDOM" >"$work/writer.$one" 2>&1 &
        writers+=($!)
    done
    # A writer that is not attached yet sends a write through the kernel, as two requests; a server
    # killed between them leaves half.
    for one in c d; do
        timeout 120 "$programs/steady" await "$mnt/server.$one" "$work/state.$one" $((writes[$one] + 100)) || { cat "$work"/writer.*; fail "round $round: no 100 writes of $one in two minutes"; }
    done
    sleep "$(printf '0.%03d' $((5 + RANDOM % 300)))"
    kill_server
    # They go on for as long as nobody else has the pool.
    [ $((round % 3)) != 0 ] || sleep 0.05
    mount_pool
    for writer in "${writers[@]}"; do wait "$writer" || { cat "$work"/writer.*; fail "round $round: a writer saw more than a dead mount"; }; done
    for one in c d; do
        writes[$one]=$("$programs/steady" check "$mnt/server.$one" "$work/state.$one") || { echo "${writes[$one]}"; fail "round $round (SEED=$seed): see above"; }
    done
    umount_pool
    fsck_clean
    mount_pool
done
was_direct "writers whose server was killed" 0 $((server_kills * 100)) steady
finish
echo "$client_kills processes and $server_kills servers killed, nothing acknowledged lost"
