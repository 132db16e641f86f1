#!/usr/bin/env bash
# PostgreSQL on a pool with a log, through the mount. Under the load of pgbench the pool's server is
# killed, or the power fails: the pool's memory is gone, too. Acknowledged transactions are there.
#
#   PGBENCH_SECONDS (20)   KILLS (3) of the server   POWER_CUTS (3)
POOL_CLASS=log
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "kills the server: it needs its own mount"
source "$repository/tests/postgres.sh"
begin 1G
prepare_postgres

# TPC-B as pgbench has it; the filler of the history says whose transaction a row is of.
cat >"$work/run/transaction.sql" <<'SQL'
\set n :n + 1
\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP, :run || ' ' || :client_id || ' ' || :n);
END;
SQL

# bench RUN SECONDS - each transaction that pgbench has seen done goes to a log.
bench() {
    as_user pgbench -n -c 4 -j 1 -T "$2" -f "$work/run/transaction.sql" -D scale=2 -D run="$1" -D n=0 \
        -l --log-prefix="$work/run/log-$1" >"$work/run/pgbench" 2>&1
}

# all_there RUN - a client's transactions are a prefix without a gap, with all that it saw done.
all_there() {
    local client least found last
    for client in 0 1 2 3; do
        least=$(cat "$work/run/log-$1".* | grep -c "^$client " || true)
        IFS='|' read -r found last < <(sql "select count(*), coalesce(max(split_part(filler, ' ', 3)::int), 0) from pgbench_history where filler like '$1 $client %'")
        [ "$found" = "$last" ] || fail "run $1, client $client: $found transactions, the last one is number $last"
        [ "$found" -ge "$least" ] || fail "run $1, client $client: $least transactions were acknowledged, $found are there"
        acknowledged=$((acknowledged + least))
    done
}

init_postgres ''
start_postgres ''
as_user pgbench -q -i -s 2 >/dev/null 2>&1 || fail "pgbench -i"
seconds=${PGBENCH_SECONDS:-20} acknowledged=0 run=0
bench 0 $((seconds / 2)) || { tail -n 5 "$work/run/pgbench"; fail "pgbench"; }
grep '^tps' "$work/run/pgbench" || true
all_there 0
consistent "pgbench"

# crash WORDS COMMAND... - COMMAND ends the pool's server in the middle of a run.
crash() {
    local words=$1 loader before=$acknowledged
    shift
    run=$((run + 1))
    bench "$run" 60 &
    loader=$!
    for _ in {1..600}; do
        [ "$(cat "$work/run/log-$run".* 2>/dev/null | wc -l)" -lt 100 ] || break
        sleep 0.05
    done
    "$@"
    # PostgreSQL ends when it cannot write its log. A process left of it would keep the old mount.
    for _ in {1..100}; do kill -0 $loader 2>/dev/null || break; sleep 0.05; done
    kill_postgres
    wait $loader && fail "pgbench did not notice that its server is gone"
    mount_pool
    start_postgres ''
    all_there "$run"
    consistent "$words"
    [ "$acknowledged" -ge $((before + 100)) ] || fail "$words: only $((acknowledged - before)) transactions were acknowledged: no load"
}

# A power failure leaves the disk alone.
power_cut() { kill_server; [ -d "$memory" ] || fail "no memory in $memory"; rm -rf "$memory"; }

for ((kill = 1; kill <= ${KILLS:-3}; kill++)); do crash "the server was killed" kill_server; done
for ((cut = 1; cut <= ${POWER_CUTS:-3}; cut++)); do crash "the power failed" power_cut; done
check_indexes
stop_postgres
finish
echo "$((kill - 1)) kills and $((cut - 1)) power failures, $acknowledged transactions acknowledged, none lost"
