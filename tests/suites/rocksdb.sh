#!/usr/bin/env bash
# rocksdb: db_bench fillsync (each write synced), readseq, compaction, ldb checkconsistency; again after the server
# was killed while writing.
source "$(dirname "$0")/../lib.sh"
need db_bench ldb
begin 1G "${1:-}"
database=$dir/rocksdb
bench() { db_bench --db="$database" --value_size=400 --compression_type=none --verify_checksum=1 "$@" >"$work/bench.log" 2>&1; }
count() { ldb --db="$database" dump --count_only 2>/dev/null | awk '/^Keys in range/{print $NF}'; }

bench --benchmarks=fillsync --num=100000000 --writes=10000 || { tail "$work/bench.log"; fail "fillsync"; }
ldb --db="$database" checkconsistency
keys=$(count)
bench --benchmarks=readseq,compact,readseq --use_existing_db=1 --num=10000 || { tail "$work/bench.log"; fail "readseq"; }
[ "$(count)" = "$keys" ] || fail "$keys keys before the compaction, $(count) after"
if [ -z "$given" ]; then
    bench --benchmarks=fillsync --use_existing_db=1 --num=100000000 --writes=100000000 --seed=2 2>/dev/null &
    writer=$!
    sleep 3
    kill_server
    wait $writer 2>/dev/null && fail "db_bench did not notice that its file system is gone"
    mount_pool
    ldb --db="$database" checkconsistency
    bench --benchmarks=readseq --use_existing_db=1 --num=10000 || { tail "$work/bench.log"; fail "readseq"; }
    after=$(count)
    [ "$after" -ge "$keys" ] || fail "$keys keys were synced, $after are left"
    keys=$after
fi
finish
echo "$keys keys, consistent"
