#!/usr/bin/env bash
# Class log: programs with the library read a pool directly and write it through the server.
# Writes survive a killed server, synced ones a power failure. The unmount frees memory that a
# process has mapped.
#
#   ROUNDS (3)
POOL_CLASS=log
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "kills the server: it needs its own mount"

# Reads so often that it goes directly; then each way to write, and a read behind it.
cat >"$work/writer.py" <<'END'
import mmap, os, sys
name, rounds = sys.argv[1], int(sys.argv[2])
blocks = 64
def block(version): return bytes([version]) * 4096
def look(fd, expected):
    for at in range(blocks):
        found = os.pread(fd, 4096, at * 4096)
        assert found == expected[at], (name, at, found[:4], expected[at][:4])
fd = os.open(name, os.O_RDWR | os.O_CREAT)
expected = [block(1)] * blocks
os.pwrite(fd, b"".join(expected), 0)
for _ in range(20): look(fd, expected)
for version in range(2, 2 + rounds):
    os.pwrite(fd, block(version), 4096 * (version % blocks))
    expected[version % blocks] = block(version)
    look(fd, expected)
    os.pwritev(fd, [block(version)] * 2, 4096 * 7)
    expected[7] = expected[8] = block(version)
    look(fd, expected)
# How many reads of those above were direct depends on the machine's times; most of these are.
for _ in range(200): look(fd, expected)
# Its counts end with the process, so it stays until they are seen.
if len(sys.argv) > 3: os.system(sys.argv[3])
END
# Writes in ways that are durable, each to a file of its own that it reads directly before.
cat >"$work/syncer.py" <<'END'
import mmap, os, sys
place = sys.argv[1]
old, new = b"o" * 65536, b"n" * 65536
def ready(name, flags=0):
    with open(f"{place}/{name}", "wb") as file: file.write(old)
    fd = os.open(f"{place}/{name}", os.O_RDWR | flags)
    for _ in range(300): assert os.pread(fd, 65536, 0) == old
    return fd
def fsync(fd): os.pwrite(fd, new, 0); os.fsync(fd)
def fdatasync(fd): os.pwrite(fd, new, 0); os.fdatasync(fd)
def write(fd): os.pwrite(fd, new, 0)
def dsync(fd): os.pwritev(fd, [new], 0, os.RWF_DSYNC)
def msync(fd):
    with mmap.mmap(fd, 65536) as area:
        area[:] = new
        area.flush()
def append(fd):
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    for at in range(16): os.write(fd, new[:4096])
    os.fsync(fd)
def reserve(fd):
    os.posix_fallocate(fd, 65536, 4096)
    os.pwrite(fd, new, 0)
    os.ftruncate(fd, 65536)
    os.fsync(fd)
ways = [("fsync", fsync, 0), ("fdatasync", fdatasync, 0), ("sync", write, os.O_SYNC), ("dsync", write, os.O_DSYNC),
        ("flag", dsync, 0), ("msync", msync, 0), ("append", append, 0), ("reserve", reserve, 0)]
os.sync()
for name, way, flags in ways:
    fd = ready(name, flags)
    way(fd)
    assert os.pread(fd, 65536, 0) == new, name
print("synced", flush=True)
END
# Has segments mapped, and the file open if it is to; then waits for a line and reads once more.
cat >"$work/keeper.py" <<'END'
import os, sys
name, keeps = sys.argv[1], sys.argv[2] == "open"
fd = os.open(name, os.O_RDONLY)
for _ in range(200): before = os.pread(fd, 4096, 0)
if not keeps: os.close(fd)
print("reading", flush=True)
sys.stdin.readline()
try: print("read", os.pread(fd, 4096, 0) == before, flush=True)
except OSError as error: print(error.strerror, flush=True)
END

read_requests() { "$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys
print(sum(one["count"] for one in json.load(sys.stdin)["server"]["statistics"]["operations"] if one["operation"] == "read"))'; }
fail_power() { kill_server; umount -l "$mnt" 2>/dev/null || true; rm -rf "$memory"; }
only_reads() {
    local counts
    read -ra counts < <(python3 "$repository/tests/load/clients.py" count "$clients")
    [ "${counts[1]}" = 0 ] || fail "${counts[1]} direct writes"
}
# start_keeper NAME WHAT - as $keeper, which reads $work/line.
start_keeper() {
    rm -f "$work/line" "$work/keeper"
    mkfifo "$work/line"
    LD_PRELOAD=$preload python3 "$work/keeper.py" "$@" <>"$work/line" >"$work/keeper" 2>&1 &
    keeper=$!
    for _ in {1..500}; do ! grep -qs reading "$work/keeper" || return 0; sleep 0.02; done
    fail "the keeper does not read: $(cat "$work/keeper")"
}
end_keeper() {
    echo >"$work/line"
    wait "$keeper" || fail "the keeper: $(cat "$work/keeper")"
}
# resident - pages of the pool's segments that the keeper has, in KiB.
resident() { awk '/segment-/ { is = 1 } /^Rss:/ && is { sum += $2; is = 0 } END { print sum + 0 }' /proc/"$keeper"/smaps; }

begin 128M
for policy in "" "--durable call"; do
    [ -z "$policy" ] || { umount_pool; mount_pool --durable call; }
    watch_clients
    requests=$(read_requests)
    direct timeout 60 python3 "$work/writer.py" "$mnt/${policy:+call.}own" 20 "env -u LD_PRELOAD python3 '$repository/tests/load/clients.py' await '$clients' 2000 0 python3"
    was_direct "reads ${policy:-by default}" 2000 0
    only_reads
    note "$(($(read_requests) - requests)) read requests"
    kill -9 "$watcher"
    # With the other policy each write waits for the disk, and the programs write much.
    [ -n "$policy" ] || "$repository/tests/direct/run.sh" "$mnt" "$preload" >"$work/programs.log" 2>&1 || { cat "$work/programs.log"; fail "programs"; }
done
umount_pool

for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
    mount_pool --durable fsync:60s
    direct timeout 60 python3 "$work/writer.py" "$mnt/killed.$round" 5
    start_keeper "$mnt/killed.$round" open
    kill_server
    umount -l "$mnt" 2>/dev/null || true
    mount_pool --durable fsync:60s
    cmp "$mnt/killed.$round" "$mnt/killed.1" || fail "round $round: lost with the server"
    end_keeper
    grep -q "not connected" "$work/keeper" || fail "round $round: read behind its server: $(cat "$work/keeper")"
    direct timeout 60 python3 "$work/syncer.py" "$mnt" | grep -q synced || fail "round $round: syncer"
    start_keeper "$mnt/fsync" open
    echo lost >"$mnt/lost"
    fail_power
    mount_pool
    end_keeper
    grep -q "not connected" "$work/keeper" || fail "round $round: read behind a power failure: $(cat "$work/keeper")"
    for way in fsync fdatasync sync dsync flag msync append reserve; do
        found="$(tr -d n <"$mnt/$way" | wc -c) $(stat -c %s "$mnt/$way")"
        [ "$found" = "0 65536" ] || fail "round $round: $way is not durable"
    done
    [ ! -e "$mnt/lost" ] || fail "nobody waited for it"
    rm "$mnt"/{fsync,fdatasync,sync,dsync,flag,msync,append,reserve}
    umount_pool
    fsck_clean
done

mount_pool
direct timeout 60 python3 "$work/writer.py" "$mnt/kept" 1
start_keeper "$mnt/kept" closed
[ "$(resident)" -gt 0 ] || fail "the keeper has nothing mapped"
umount_pool
[ ! -e "$memory" ] || fail "the memory has its name still"
[ "$(resident)" = 0 ] || fail "$(resident) KiB stay because a process has them mapped"
end_keeper
mount_pool
finish
echo "class log: processes read and the server writes, through kills and power failures"
