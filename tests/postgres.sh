# shellcheck shell=bash disable=SC2154
# Sourced after lib.sh by the suites that run PostgreSQL on a mount.
#
#   POSTGRES_USER  the user of its server if root runs the suite (nobody)
binaries=$(dirname "$(readlink -f "$(command -v postgres || echo /usr/lib/postgresql/*/bin/postgres)")")
# Not installed by itself: Debian's package starts a service.
[ -x "$binaries/initdb" ] || { echo "skipped: PostgreSQL is not installed (apt-get install postgresql)"; exit 0; }
PATH=$binaries:$PATH
need postgres initdb pgbench psql

as_user() { "${as[@]}" "$@"; }
sql() { as_user psql -qAtX -v ON_ERROR_STOP=1 -c "$1"; }

# prepare_postgres - a directory for the data on the mount, and one beside it for all else.
prepare_postgres() {
    local user
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
    cd "$work/run" || exit
    as+=(env HOME="$work/run" PGHOST="$work/run" PGUSER=postgres PGDATABASE=postgres LC_ALL=C)
}

# init_postgres LIBRARY - a new cluster; LIBRARY is preloaded, or ''.
init_postgres() {
    as_user LD_PRELOAD="$1" initdb -D "$mnt/data" -U postgres -A trust --no-locale -E UTF8 >"$work/initdb.log" 2>&1 || { tail "$work/initdb.log"; fail "initdb"; }
}

# start_postgres LIBRARY
start_postgres() {
    # Not by the function: that would be a shell with postgres below it.
    "${as[@]}" LD_PRELOAD="$1" "$binaries/postgres" -D "$mnt/data" -k "$work/run" -c listen_addresses= -c shared_buffers=16MB -c fsync=on -c synchronous_commit=on -c full_page_writes=on -c max_wal_size=64MB -c checkpoint_timeout=30s >>"$work/postgres.log" 2>&1 &
    postmaster=$!
    for _ in {1..400}; do
        [ "$(sql 'select 1' 2>/dev/null)" != 1 ] || return 0
        kill -0 $postmaster 2>/dev/null || break
        sleep 0.05
    done
    tail -n 20 "$work/postgres.log"
    fail "postgres does not answer"
}

# All processes, as a power cut would.
kill_postgres() {
    local children
    children=$(pgrep -P "$postmaster" || true)
    # shellcheck disable=SC2086
    { kill -9 "$postmaster" $children; wait "$postmaster"; } 2>/dev/null || true
    for _ in {1..100}; do
        # shellcheck disable=SC2086
        kill -0 $children 2>/dev/null || break
        sleep 0.02
    done
    rm -f "$work"/run/.s.PGSQL*
}

stop_postgres() {
    as_user psql -qAtX -c checkpoint >/dev/null
    kill -INT "$postmaster"
    wait "$postmaster" || fail "postgres ended with status $?"
    cd /
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

# check_indexes - the trees of all indexes, where PostgreSQL's own checker is installed.
check_indexes() {
    if command -v pg_amcheck >/dev/null && sql "create extension if not exists amcheck" 2>/dev/null; then as_user pg_amcheck --heapallindexed && note "pg_amcheck"; fi
}
