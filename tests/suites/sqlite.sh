#!/usr/bin/env bash
# sqlite3 in WAL and in rollback mode, synchronous=FULL: two writers, killed server, then every acknowledged commit is
# there and integrity_check says ok.
source "$(dirname "$0")/../lib.sh"
need python3
begin 1G "${1:-}"
load=$repository/tests/load/sqlite.py

for mode in wal delete; do
    python3 "$load" load "$dir/$mode.db" $mode 300
    python3 "$load" check "$dir/$mode.db" 300
    [ -z "$given" ] || continue
    : >"$work/acknowledged"
    for round in 1 2 3; do
        python3 "$load" until-error "$dir/$mode.db" $mode "$work/acknowledged" &
        writer=$!
        while [ "$(wc -l <"$work/acknowledged")" -lt $((round * 100)) ]; do
            kill -0 $writer || fail "the writer ended by itself"
            sleep 0.02
        done
        kill_server
        wait $writer || fail "the writer saw more than a dead mount"
        mount_pool
        python3 "$load" check "$dir/$mode.db" "$(tail -n 1 "$work/acknowledged")"
    done
    note "$mode: $(wc -l <"$work/acknowledged") commits acknowledged over three kills"
done
finish
echo "WAL and rollback, integrity ok"
