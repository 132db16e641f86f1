#!/usr/bin/env bash
# A program that keeps many files open and does not write to them: the room that their leases take comes back, and nobody notices. One that goes on writing keeps its lease.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
need python3
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
make_pool 512M
mount_pool --lease-timeout 2
dir=$mnt
files=50

# of_server WORD - what the server says of direct access.
of_server() { "$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server"]["direct"][sys.argv[1]])' "$1"; }
available() { "$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["available_bytes"])'; }
# await_leases COUNT - until there are so many.
await_leases() {
    for _ in {1..200}; do
        [ "$(of_server leases)" != "$1" ] || return 0
        sleep 0.1
    done
    fail "$(of_server leases) leases after 20 s, $1 expected"
}

# keeper FIFO - writes 40 blocks of each file; after a line on the FIFO the next 40 of each; and what it reads must be what it wrote.
cat >"$work/keeper.py" <<'PYTHON'
import os, sys
folder, count, fifo, said = sys.argv[1], int(sys.argv[2]), open(sys.argv[3]), sys.argv[4]
files = [os.open(f"{folder}/file{number}", os.O_RDWR | os.O_CREAT) for number in range(count)]
block = lambda number, turn, index: bytes([number, turn, index]) * 1365 + b"."
for turn in range(2):
    for number, file in enumerate(files):
        for index in range(40):
            os.pwrite(file, block(number, turn, index), index * 4096)
    open(f"{said}.{turn}", "w").close()
    fifo.readline()
    for number, file in enumerate(files):
        for index in range(40):
            assert os.pread(file, 4096, index * 4096) == block(number, turn, index), (number, index)
PYTHON
# from_outside TURN - the same by the kernel.
from_outside() {
    python3 - "$dir" $files "$1" <<'PYTHON' || fail "what is in the files, turn $1"
import sys
folder, count, turn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    content = b"".join(bytes([number, turn, index]) * 1365 + b"." for index in range(40))
    assert open(f"{folder}/file{number}", "rb").read() == content, number
PYTHON
}

mkfifo "$work/turn"
watch_clients
direct python3 "$work/keeper.py" "$dir" $files "$work/turn" "$work/said" &
keeper=$!
exec 7>"$work/turn"
for _ in {1..200}; do [ ! -e "$work/said.0" ] || break; sleep 0.02; done
granted=$(of_server leases_granted) before=$(available)
[ "$granted" -ge $files ] || fail "$granted leases of $files files"
# Stopped or not, it does not use them.
kill -STOP $keeper
await_leases 0
kill -CONT $keeper
[ "$(of_server leases_timed_out)" -ge $files ] || fail "$(of_server leases_timed_out) leases timed out"
[ "$(of_server leases_taken_back) $(of_server leases_forced)" = "0 0" ] || fail "somebody wanted a file"
gained=$((($(available) - before) >> 20))
[ $gained -ge $((2 * files)) ] || fail "only $gained MiB came back"
from_outside 0
echo >&7
for _ in {1..200}; do [ ! -e "$work/said.1" ] || break; sleep 0.02; done
[ -e "$work/said.1" ] || fail "the program does not go on"
from_outside 1
echo >&7
wait $keeper || fail "what the program read"
was_direct keeper 1 $((2 * files * 20))

# A write each eighth of the timeout, for more than two of them.
before=$(of_server leases_timed_out)
direct python3 - "$dir/log" <<'PYTHON' || fail "the program that goes on"
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for line in range(40):
    os.write(log, b"%d\n" % line)
    time.sleep(0 if line < 20 else 0.25)
PYTHON
[ "$(of_server leases_timed_out)" = "$before" ] || fail "a lease timed out that was used"
seq 0 39 | cmp - "$dir/log" || fail "what the program wrote"

# By the times that calls take (no fixed operation): short files are never attached, because 64
# calls at least pay for one; a file that is used for long is.
measured() { env -u PERDURE_DIRECT_AFTER LD_PRELOAD="$preload" "$@"; }
before=$(of_server attached)
measured python3 - "$dir" <<'PYTHON' || fail "short files"
import os, sys
for number in range(200):
    for flags in os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDONLY:
        file = os.open(f"{sys.argv[1]}/short{number % 10}", flags)
        for _ in range(32):
            assert (os.read(file, 512) if flags == os.O_RDONLY else os.write(file, bytes(512)))
        os.close(file)
PYTHON
[ "$(of_server attached)" = "$before" ] || fail "short files were attached"
# A request takes a microsecond at least, so these pay the first price several times.
measured python3 - "$dir/long" <<'PYTHON' || fail "a long file"
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for block in range(20_000):
    os.pwrite(file, bytes(4096), block % 64 * 4096)
PYTHON
[ "$(of_server attached)" != "$before" ] || fail "a file that was used for long was not attached"
finish
echo "$granted leases of a program that stood still: $gained MiB came back"
