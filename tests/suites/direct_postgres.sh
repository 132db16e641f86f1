#!/usr/bin/env bash
# PostgreSQL with the library, as a user of its own whose files are its protection domain: pgbench, the postmaster killed, and again without the library; sums of balances agree, each acknowledged transaction is there.
#
#   PGBENCH_SECONDS (20)   POSTGRES_USER  who runs it if the suite is run by root (nobody)
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
source "$repository/tests/postgres.sh"
begin 2G
prepare_postgres
cp "$preload" "$work/run/preload.so"
chmod 755 "$work/run/preload.so"
library=$work/run/preload.so

# bench SECONDS - each transaction that it has seen done goes to a log.
bench() {
    as_user pgbench -n -c 4 -j 1 -T "$1" -l --log-prefix="$work/run/log" >"$work/run/pgbench" 2>&1
}

watch_clients
init_postgres "$library"
start_postgres "$library"
as_user pgbench -q -i -s 2 >/dev/null 2>&1 || fail "pgbench -i"
seconds=${PGBENCH_SECONDS:-20}
bench $((seconds / 2)) || { tail -n 5 "$work/run/pgbench"; fail "pgbench"; }
grep '^tps' "$work/run/pgbench" || true
consistent "pgbench"
was_direct postgres 0 1000 postgres
before=$(sql "select count(*) from pgbench_history")

rm -f "$work"/run/log*
bench 60 &
loader=$!
sleep $((seconds / 2))
kill_postgres
wait $loader && fail "pgbench did not notice that its server is gone"
noted=$(cat "$work"/run/log* | wc -l)
# Without the library: what was written directly is what the kernel reads.
start_postgres ''
after=$(sql "select count(*) from pgbench_history")
[ "$after" -ge $((before + noted)) ] || fail "$((before + noted)) transactions were acknowledged, $after are there"
consistent "after the kill, without the library"
kill_postgres
start_postgres "$library"
bench 2 || fail "pgbench after the restart"
consistent "and again with it"
check_indexes
stop_postgres
finish
echo "$after transactions, $noted acknowledged before the kill"
