#!/usr/bin/env bash
# A mount with --in-place: fio verified with the library and without it, fsx, two processes by turns, writers and a server that are killed; and that overwrites leave no records.
#
#   FSX_OPERATIONS  (20000)   COHERENCE_ROUNDS  turns of each process (250)
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
need fio python3
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
fsx=$tools/fsx-0.3.2
[ -x "$fsx" ] || fail "no fsx: run scripts/install-tools.sh test"
make_pool 512M
mount_pool --in-place
dir=$mnt
compile coherence
watch_clients
operations=${FSX_OPERATIONS:-20000}

# of_server WORD - what the server says of direct access; a busy machine may need more than one question.
of_server() {
    for _ in {1..20}; do
        ! "$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server"]["direct"][sys.argv[1]])' "$1" 2>/dev/null || return 0
        sleep 0.2
    done
    fail "the server does not answer"
}
[ "$(of_server in_place)" = True ] || fail "the mount does not say that it overwrites in place"
"$PERDURE" stat "$mnt" | grep 'overwrites in place' >/dev/null || fail "stat does not say so either"

# Blocks that are written, again and again, at any place and of any length; each job is read by the library and by the kernel.
for job in "blocks --bs=4k" "small --bs=512" "mixed --bsrange=512-64k --bs_unaligned=1" "large --bsrange=64k-256k"; do
    read -r name options <<<"$job"
    head -c 8M /dev/urandom >"$dir/$name"
    watch_again
    before=$(of_server records_folded)
    # shellcheck disable=SC2086
    set -- --name="$name" --aux-path="$work" --filename="$dir/$name" --ioengine=psync --size=8m --rw=randwrite --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal --thread $options
    direct timeout 60 fio "$@" >"$work/fio.log" 2>&1 || { tail -n 20 "$work/fio.log"; fail "fio $name"; }
    timeout 60 fio "$@" --verify_only=1 >"$work/fio.log" 2>&1 || { tail -n 20 "$work/fio.log"; fail "fio $name, from outside"; }
    case $name in
    large) was_direct "fio $name" 10 10 fio ;;
    mixed) was_direct "fio $name" 100 100 fio ;;
    *) was_direct "fio $name" 1000 1500 fio ;;
    esac
    records=$(($(of_server records_folded) - before))
    # One for each tick of the clock, of which there are 250 a second, and not one for each block.
    [ "$records" -lt 1000 ] || fail "fio $name: $records records of overwrites in place"
    note "fio $name: $records records"
done

# With few operations that take the lease back: direct_fsx.sh says why.
sed 's/^\(mapread\|mapwrite\) = .*/\1 = 0.0/; s/^\(truncate\|posix_fallocate\|punch_hole\|copy_file_range\|sendfile\|close_open\|invalidate\|posix_fadvise\) = .*/\1 = 0.002/' "$repository/tests/fsx.toml" >"$work/2.toml"
cp "$repository/tests/fsx.toml" "$work/1.toml"
watch_again
for seed in 1 2; do
    direct timeout 100 "$fsx" -q -f "$work/$seed.toml" -S $seed -N "$operations" -P "$work" "$dir/fsx.$seed" >"$work/fsx.log" 2>&1 || { tail -n 40 "$work/fsx.log"; fail "fsx, seed $seed"; }
done
was_direct fsx 100 100

# Two processes take turns with one file, and each checks it against a model.
mkfifo "$work/one" "$work/two"
truncate -s $((8 + 1048576)) "$work/model"
: >"$dir/pair"
exec 8<>"$work/one" 9<>"$work/two"
watch_again
direct timeout 60 "$programs/coherence" "$dir/pair" "$work/model" 1 "${COHERENCE_ROUNDS:-250}" 0 3<&8 4>&9 >"$work/pair.0" 2>&1 8<&- 9<&- &
zero=$!
direct timeout 60 "$programs/coherence" "$dir/pair" "$work/model" 1 "${COHERENCE_ROUNDS:-250}" 1 3<&9 4>&8 >"$work/pair.1" 2>&1 8<&- 9<&- &
one=$!
printf t >&8
disagree() { cat "$work/pair.0" "$work/pair.1"; kill -9 $zero $one 2>/dev/null || true; fail "two processes alternating"; }
# The first that ends says how it went; the other would wait for its token.
wait -n $zero $one || disagree
wait $zero $one || disagree
exec 8<&- 9<&-
was_direct "two processes alternating" "${DIRECT_LEAST:-200}" "${DIRECT_LEAST:-200}" coherence

# A writer that is killed, then a server: what was there is there, each word old or new. A generation fills all words of the file alike.
cat >"$work/writer.py" <<'WRITER'
import os, sys
path, acknowledged = sys.argv[1:]
file = os.open(path, os.O_RDWR)
done = os.open(acknowledged, os.O_WRONLY | os.O_CREAT)
generation = 0
while True:
    generation += 1
    os.pwrite(file, generation.to_bytes(8, "little") * (1 << 15), 0)
    os.pwrite(done, generation.to_bytes(8, "little"), 0)
WRITER
cat >"$work/looker.py" <<'LOOKER'
import array, os, sys
words = array.array("Q", open(sys.argv[1], "rb").read())
done = int.from_bytes(open(sys.argv[2], "rb").read(), "little")
assert done > 100, f"only {done} generations"
assert set(words) <= {done, done + 1}, f"{set(words)}, {done} was acknowledged"
LOOKER
for victim in writer server writer server; do
    head -c 256K /dev/zero >"$dir/generations"
    # Not by the function, whose shell would be what is killed.
    env LD_PRELOAD="$preload" python3 "$work/writer.py" "$dir/generations" "$work/acknowledged" 2>"$work/writer.log" &
    writer=$!
    sleep 1
    if [ $victim = server ]; then
        kill_server
        { kill -9 $writer && wait $writer; } 2>/dev/null || true
        umount -l "$mnt"
        mount_pool --in-place
    else
        { kill -9 $writer && wait $writer; } 2>/dev/null || true
    fi
    python3 "$work/looker.py" "$dir/generations" "$work/acknowledged" || fail "a $victim was killed"
    rm "$work/acknowledged"
done
umount_pool
fsck_clean

# Who asks for it finds a mount that has it, or hears that there is one without it.
"$PERDURE" run "$pool" --volatile --in-place -- sh -c "'$PERDURE' stat \"\$PERDURE_MNT\" | grep -q 'overwrites in place'" || fail "perdure run --in-place"
mount_pool
if "$PERDURE" run "$pool" --in-place -- true 2>"$work/refused"; then fail "a mount without --in-place was taken for one with it"; fi
grep -q 'mounted without --in-place' "$work/refused" || fail "said: $(cat "$work/refused")"
finish
echo "fio 4 jobs verified twice, fsx 2 x $operations operations, 2 writers and 2 servers killed"
