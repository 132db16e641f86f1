#!/usr/bin/env bash
# fio writes blocks with a crc32c in each, reads all of them back and verifies: by system calls, by mappings, past the
# page cache, from four jobs at once; then once more after the server was killed.
source "$(dirname "$0")/../lib.sh"
need fio
begin 2G "${1:-}"
cd "$work"      # where fio leaves its state files

# check NAME OPTION... - one fio run in its own directory.
check() {
    local name=$1
    shift
    mkdir -p "$dir/$name"
    fio --name="$name" --directory="$dir/$name" --verify=crc32c --verify_fatal=1 --do_verify=1 --group_reporting \
        --minimal "$@" >"$name.log" 2>&1 || { tail -n 20 "$name.log"; fail "fio $name"; }
    runs=$((runs + 1))
}
runs=0
check psync --ioengine=psync --rw=randwrite --bs=4k --size=64m
check psync-odd --ioengine=psync --rw=randrw --bsrange=512-64k --bs_unaligned=1 --size=64m
check mmap --ioengine=mmap --rw=randwrite --bs=4k --size=64m
check jobs --ioengine=psync --rw=randwrite --bs=4k --size=32m --numjobs=4
check jobs-mmap --ioengine=mmap --rw=randwrite --bs=16k --size=32m --numjobs=4
check append-sync --ioengine=psync --rw=write --bs=4k --size=16m --fsync=1
check direct --ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=64m
check direct-large --ioengine=psync --direct=1 --rw=write --bs=1m --size=256m
check direct-deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=4k --size=32m --numjobs=4
if [ -z "$given" ]; then
    remount
    check psync --ioengine=psync --rw=randwrite --bs=4k --size=64m --verify_only=1
    check direct --ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=64m --verify_only=1
    check mmap --ioengine=mmap --rw=randwrite --bs=4k --size=64m --verify_only=1
fi
finish
echo "$runs runs verified by crc32c"
