#!/usr/bin/env bash
# Programs that know nothing of Perdure, with the library: fio by eight engines, sqlite, rocksdb, redis, git, Python, tar, dd, rsync, cp, the shell. What they wrote is read by programs without it.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
need fio sqlite3 db_bench ldb redis-check-rdb redis-cli redis-benchmark git python3 tar rsync
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
begin 2G
cd "$work"
watch_clients

# fio: verified with the library, and once more without it.
job() {
    local name=$1
    shift
    mkdir "$dir/$name"
    local options=(--name="$name" --directory="$dir/$name" --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal --thread --size=8m --bs=4k --rw=randwrite "$@")
    direct timeout 60 fio "${options[@]}" >"$name.log" 2>&1 || { tail -n 20 "$name.log"; fail "fio $name"; }
    timeout 60 fio "${options[@]}" --verify_only=1 >"$name.log" 2>&1 || { tail -n 20 "$name.log"; fail "fio $name, from outside"; }
    jobs=$((jobs + 1))
}
fio_jobs() {
    local least=1500
    [ "${POOL_CLASS:-}" != log ] || least=0
    jobs=0
    for engine in psync sync vsync pvsync pvsync2; do
        watch_again
        job $engine --ioengine=$engine --exec_postrun="env -u LD_PRELOAD python3 $repository/tests/load/clients.py await $clients 1000 $least fio"
        was_direct "fio $engine" 1000 1500 fio
    done
    job mixed --ioengine=psync --rw=randrw --bsrange=512-64k --bs_unaligned=1
    job two --ioengine=psync --numjobs=2
    job mmap --ioengine=mmap
    job posixaio --ioengine=posixaio
    job libaio --ioengine=libaio --direct=1 --iodepth=8
    if fio --enghelp=io_uring >/dev/null 2>&1 && direct fio --name=probe --directory="$work" --ioengine=io_uring --size=64k --minimal >/dev/null 2>&1; then job io_uring --ioengine=io_uring --iodepth=8; fi
    note "fio: $jobs jobs, verified twice"
}

sqlites() {
    local mode rows
    for mode in delete wal; do
        watch_again
        direct timeout 60 python3 "$repository/tests/load/sqlite.py" load "$dir/$mode.db" $mode 200
        # In the end it reads the pages that it has written, more than a hundred, all but the first fifteen directly; before that, whether it reads after the file is attached is chance.
        was_direct "sqlite, $mode" 70 100
        python3 "$repository/tests/load/sqlite.py" check "$dir/$mode.db" 200
        [ "$(direct sqlite3 "$dir/$mode.db" 'pragma integrity_check')" = ok ] || fail "sqlite $mode: integrity_check with the library"
        direct sqlite3 "$dir/$mode.db" "pragma synchronous = full; create table t (n integer primary key, x text); with recursive c(n) as (select 1 union all select n + 1 from c where n < 5000) insert into t select n, hex(randomblob(40)) from c; delete from t where n % 3 = 0; vacuum;" >/dev/null
        rows=$(sqlite3 "$dir/$mode.db" 'select count(*) from t; pragma integrity_check')
        [ "$rows" = 3334$'\n'ok ] || fail "sqlite $mode: $rows"
    done
}

rocksdb() {
    watch_again
    direct timeout 60 db_bench --db="$dir/rocksdb" --value_size=400 --compression_type=none --verify_checksum=1 --num=20000 --benchmarks=fillsync,readrandom,compact,readrandom >"$work/bench.log" 2>&1 || { tail "$work/bench.log"; fail "db_bench"; }
    was_direct db_bench 0 10000 db_bench
    ldb --db="$dir/rocksdb" checkconsistency >/dev/null
    timeout 60 db_bench --db="$dir/rocksdb" --verify_checksum=1 --num=20000 --use_existing_db=1 --benchmarks=readseq >"$work/bench.log" 2>&1 || fail "db_bench readseq, from outside"
}

redises() {
    ln -s "$(command -v redis-check-rdb)" "$work/redis-server"
    mkdir "$dir/redis"
    start_redis() {
        LD_PRELOAD=$1 "$work/redis-server" --port 0 --unixsocket "$work/redis.sock" --dir "$dir/redis" --appendonly yes --appendfsync always --save '' --daemonize no >>"$work/redis.log" 2>&1 &
        redis=$!
        for _ in {1..200}; do
            [ "$(redis-cli -s "$work/redis.sock" ping 2>/dev/null)" != PONG ] || return 0
            sleep 0.05
        done
        tail -n 20 "$work/redis.log"
        fail "redis does not answer"
    }
    : >"$work/acknowledged"
    watch_again
    start_redis "$preload"
    redis-benchmark -s "$work/redis.sock" -q -t set,incr,lpush -n 3000 >/dev/null
    python3 "$repository/tests/load/redis.py" load "$work/redis.sock" "$work/acknowledged" &
    local loader=$!
    sleep 2
    was_direct redis 0 1000 redis-server
    { kill -9 $redis && wait $redis; } 2>/dev/null || true
    wait $loader || fail "redis: load"
    start_redis ''
    python3 "$repository/tests/load/redis.py" check "$work/redis.sock" "$work/acknowledged"
    redis-cli -s "$work/redis.sock" shutdown nosave >/dev/null 2>&1 || true
    wait $redis 2>/dev/null || true
    note "redis: $(wc -l <"$work/acknowledged") acknowledged, none lost"
}

pythons() {
    watch_again
    mkdir "$dir/python"
    direct timeout 60 python3 "$repository/tests/load/files_direct.py" "$dir/python" || fail "files_direct.py"
    was_direct python 200 500
    (cd "$dir/python" && sha256sum --quiet -c expected) || fail "what Python wrote"
}

gits() {
    export GIT_CONFIG_GLOBAL=$work/gitconfig GIT_CONFIG_NOSYSTEM=1
    git config --global safe.directory '*'
    git config --global user.name test
    git config --global user.email test@localhost
    # shellcheck disable=SC2016
    direct timeout 80 bash -euc 'git init -q "$1"; cd "$1"; for i in {1..30}; do seq $i $((i * 200)) >file$((i % 5)); echo "$i" >>log; git add -A; git commit -q -m "commit $i"; done; git gc -q --prune=now; git fsck --strict --full; git status --porcelain' git "$dir/git" || fail "git"
    git -C "$dir/git" fsck --strict --full
    [ "$(git -C "$dir/git" rev-list --count HEAD)" = 30 ] || fail "git: commits are missing"
    [ -z "$(git -C "$dir/git" status --porcelain)" ] || fail "git: the work tree changed by itself"
    note "git: 30 commits, gc, fsck"
}

copies() {
    local tree=$work/tree
    mkdir "$tree"
    python3 "$repository/tests/tree.py" "$tree"
    # diff cannot compare them.
    find "$tree" -type p -delete
    head -c 20000000 /dev/urandom >"$tree/large"
    # tar out of one directory into another, whatever the attributes (tar.sh has those).
    tar -C "$tree" --format=posix --sparse -cf "$work/first.tar" .
    watch_again
    direct cp --reflink=never "$work/first.tar" "$dir/first.tar"
    cmp "$work/first.tar" "$dir/first.tar" || fail "cp in"
    direct cp --reflink=never "$dir/first.tar" "$dir/second.tar"
    cmp "$work/first.tar" "$dir/second.tar" || fail "cp within"
    mkdir "$dir/tar"
    direct tar -C "$dir/tar" -xpf "$dir/second.tar"
    tar -C "$dir/tar" --compare -f "$work/first.tar" || fail "tar in"
    direct tar -C "$dir/tar" --format=posix --sparse -cf "$dir/third.tar" .
    mkdir "$work/back"
    tar -C "$work/back" -xpf "$dir/third.tar"
    diff -r --no-dereference "$tree" "$work/back" || fail "tar out"
    mkdir "$dir/rsync"
    direct rsync -a "$tree/" "$dir/rsync/" || fail "rsync"
    echo changed >>"$tree/large"
    direct rsync -a --inplace --no-whole-file --checksum "$tree/" "$dir/rsync/" || fail "rsync in place"
    diff -r --no-dereference "$tree" "$dir/rsync" || fail "rsync"
    # dd: in the middle, and at the end.
    cp "$tree/large" "$dir/dd"
    cp "$tree/large" "$work/dd"
    for target in "$dir/dd" "$work/dd"; do
        direct dd if="$tree/large" of="$target" bs=4k count=200 seek=1000 conv=notrunc status=none
        direct dd if="$tree/large" of="$target" bs=3k count=300 oflag=append conv=notrunc status=none
        direct dd if="$tree/large" of="$target" bs=4k count=50 seek=7 conv=notrunc oflag=direct,dsync status=none
    done
    cmp "$dir/dd" "$work/dd" || fail "dd"
    [ "$(direct dd if="$dir/dd" bs=4k status=none | sha256sum)" = "$(sha256sum <"$work/dd")" ] || fail "dd out"
    was_direct "cp, tar, rsync, dd" 100 100
    note "cp, tar, rsync, dd"
}

shells() {
    # The same script on the mount and on shared memory: the same files.
    cat >"$work/script" <<'SCRIPT'
set -eu
cd "$1"
for i in {1..200}; do echo "line $i" >>appended; done
# The shell itself writes by the kernel; by turns with somebody who does not.
# It stays for a moment, so that who watches the clients sees it at its end, however fast it was.
turns='import os, sys, time
file = os.open("turns", os.O_WRONLY | os.O_APPEND)
for i in range(200): os.write(file, b"%s %d\n" % (sys.argv[1].encode(), i))
time.sleep(0.3)'
exec 6>>turns
for i in {1..8}; do
    echo "turn $i" >>turns
    python3 -c "$turns" "$i"
    echo "turn $i again" >&6
    cat turns >turns.$i
done
exec 6>&-
exec 3>>third
for i in {1..100}; do
    echo "third $i" >&3
    (echo "subshell $i" >&3; bash -c "echo other $i >&3")
done
exec 3>&-
exec 4<>both
for i in {1..100}; do echo "both $i" >&4; done
exec 4>&-
exec 4<>both
read -r first <&4; read -r second <&4
echo "XXXX" >&4
exec 4>&-
echo "$first, $second" >said
{ for i in {1..50}; do echo "group $i"; ls / >/dev/null; (printf 'in %s\n' $i); done; } >group
exec 5<appended
while read -r line <&5; do if [ "${line%0}" != "$line" ]; then head -n 1 <&5 >>heads; read -r line <&5 || break; echo "$line" >>after; fi; done
seq 5000 | tee tee1 tee2 | tail -n 3 >tail
sort -n -r tee1 >sorted; sed -i 's/7/seven/' tee2; gzip -k tee1; gunzip -c tee1.gz | cmp - tee1; rm tee1.gz
SCRIPT
    watch_again
    mkdir "$dir/shell" "$work/shell"
    direct timeout 60 bash "$work/script" "$dir/shell" || fail "the shell on the mount"
    bash "$work/script" "$work/shell" || fail "the shell in shared memory"
    diff -r "$dir/shell" "$work/shell" || fail "what the shell wrote"
    was_direct "who takes turns with the shell" 0 500 python3
}

for part in ${PARTS:-fio_jobs sqlites rocksdb redises pythons gits copies shells}; do
    begin_part=$SECONDS
    $part
    note "$part: $((SECONDS - begin_part)) s"
done
finish
echo "what programs wrote with the library is there without it"
