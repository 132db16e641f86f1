#!/usr/bin/env bash
# PostgreSQL with the library, as a user of its own whose files are its protection domain: pgbench, the postmaster killed, and again without the library; sums of balances agree, each acknowledged transaction is there.
#
#   PGBENCH_SECONDS (20)   POSTGRES_USER  who runs it if the suite is run by root (nobody)
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
binaries=$(dirname "$(readlink -f "$(command -v postgres || echo /usr/lib/postgresql/*/bin/postgres)")")
# Not installed by itself: Debian's package starts a service.
[ -x "$binaries/initdb" ] || { echo "skipped: PostgreSQL is not installed (apt-get install postgresql)"; exit 0; }
PATH=$binaries:$PATH
need postgres initdb pgbench psql
begin 2G
if [ "$(id -u)" = 0 ]; then
    user=${POSTGRES_USER:-nobody}
    as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
else
    user=$(id -un) as=()
fi
chmod 755 "$work"
mkdir "$mnt/data" "$work/run"
chown "$user" "$mnt/data" "$work/run"
chmod 700 "$mnt/data"
: >"$work/postgres.log"
cp "$preload" "$work/run/preload.so"
chmod 755 "$work/run/preload.so"
library=$work/run/preload.so
cd "$work/run"
as+=(env HOME="$work/run" PGHOST="$work/run" PGUSER=postgres PGDATABASE=postgres LC_ALL=C)
as_user() { "${as[@]}" "$@"; }
sql() { as_user psql -qAtX -v ON_ERROR_STOP=1 -c "$1"; }

start() {
    # Not by the function: that would be a shell with postgres below it.
    "${as[@]}" LD_PRELOAD="$1" "$binaries/postgres" -D "$mnt/data" -k "$work/run" -c listen_addresses= -c shared_buffers=16MB -c fsync=on -c full_page_writes=on -c max_wal_size=64MB -c checkpoint_timeout=30s >>"$work/postgres.log" 2>&1 &
    postmaster=$!
    for _ in {1..400}; do
        [ "$(sql 'select 1' 2>/dev/null)" != 1 ] || return 0
        kill -0 $postmaster 2>/dev/null || break
        sleep 0.05
    done
    tail -n 20 "$work/postgres.log"
    fail "postgres does not answer"
}

# All of them, as a power cut would.
kill_all() {
    local children
    children=$(pgrep -P "$postmaster" || true)
    # shellcheck disable=SC2086
    { kill -9 "$postmaster" $children && wait "$postmaster"; } 2>/dev/null || true
    for _ in {1..100}; do
        # shellcheck disable=SC2086
        kill -0 $children 2>/dev/null || break
        sleep 0.02
    done
    rm -f "$work"/run/.s.PGSQL*
}

# Every transaction moves the same amount in three tables and writes it down in a fourth.
consistent() {
    local sums
    sums=$(sql "select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)")
    IFS='|' read -r accounts tellers branches history <<<"$sums"
    [ "$accounts $accounts $accounts" = "$tellers $branches $history" ] || fail "$1: sums $sums"
    [ "$(sql "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off; select count(*) from pgbench_accounts")" = 200000 ] || fail "$1: accounts are missing"
    [ "$(sql "set enable_seqscan = off; select count(*) from pgbench_accounts where aid > 0")" = 200000 ] || fail "$1: the index misses accounts"
    note "$1: sums agree, $(sql "select count(*) from pgbench_history") transactions"
}

# bench SECONDS - each transaction that it has seen done goes to a log.
bench() {
    as_user pgbench -n -c 4 -j 1 -T "$1" -l --log-prefix="$work/run/log" >"$work/run/pgbench" 2>&1
}

watch_clients
as_user LD_PRELOAD="$library" initdb -D "$mnt/data" -U postgres -A trust --no-locale -E UTF8 >"$work/initdb.log" 2>&1 || { tail "$work/initdb.log"; fail "initdb"; }
start "$library"
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
kill_all
wait $loader && fail "pgbench did not notice that its server is gone"
noted=$(cat "$work"/run/log* | wc -l)
# Without the library: what was written directly is what the kernel reads.
start ''
after=$(sql "select count(*) from pgbench_history")
[ "$after" -ge $((before + noted)) ] || fail "$((before + noted)) transactions were acknowledged, $after are there"
consistent "after the kill, without the library"
kill_all
start "$library"
bench 2 || fail "pgbench after the restart"
consistent "and again with it"
if command -v pg_amcheck >/dev/null && sql "create extension if not exists amcheck" 2>/dev/null; then as_user pg_amcheck --heapallindexed && note "pg_amcheck"; fi
as_user psql -qAtX -c checkpoint >/dev/null
kill -INT $postmaster
wait $postmaster || fail "postgres ended with status $?"
cd /
finish
echo "$after transactions, $noted acknowledged before the kill"
