#!/usr/bin/env bash
# redis with appendfsync always: first redis is killed, then Perdure's server below it; each time every acknowledged
# SET is there after the reload.
source "$(dirname "$0")/../lib.sh"
need redis-check-rdb redis-cli python3
begin 1G "${1:-}"
socket=$work/redis.sock
# The Debian package redis-tools has the server's program under this name only; it looks at how it is called.
ln -s "$(command -v redis-check-rdb)" "$work/redis-server"

start_redis() {
    "$work/redis-server" --port 0 --unixsocket "$socket" --dir "$dir" --appendonly yes --appendfsync always --save '' \
        --daemonize no >>"$work/redis.log" 2>&1 &
    redis=$!
    for _ in {1..200}; do
        [ "$(redis-cli -s "$socket" ping 2>/dev/null)" != PONG ] || return 0
        kill -0 $redis 2>/dev/null || { tail -n 20 "$work/redis.log"; fail "redis does not start"; }
        sleep 0.05
    done
    fail "redis does not answer"
}
kill_redis() { { kill -9 $redis && wait $redis; } 2>/dev/null || true; }
# load COUNT - sets in the background until COUNT more are acknowledged.
load() {
    before=$(wc -l <"$work/acknowledged")
    python3 "$repository/tests/load/redis.py" load "$socket" "$work/acknowledged" &
    loader=$!
    while [ $(($(wc -l <"$work/acknowledged") - before)) -lt "$1" ]; do
        kill -0 $loader 2>/dev/null || fail "the load ended by itself"
        sleep 0.02
    done
}
check() { python3 "$repository/tests/load/redis.py" check "$socket" "$work/acknowledged"; }

: >"$work/acknowledged"
start_redis
load 500
kill_redis
wait $loader || fail "load"
start_redis
check
if [ -z "$given" ]; then
    for _ in 1 2 3; do
        load 500
        kill_server
        kill_redis
        wait $loader || fail "load"
        mount_pool
        start_redis
        check
    done
fi
redis-cli -s "$socket" shutdown nosave >/dev/null 2>&1 || true
wait $redis 2>/dev/null || true
finish
echo "$(wc -l <"$work/acknowledged") acknowledged, none lost"
