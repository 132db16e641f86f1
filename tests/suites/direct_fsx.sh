#!/usr/bin/env bash
# One file, two views: fsx with the library, then two processes that take turns with random operations on one file and check each against a model, with the library in one of them, in the other, and in both.
#
#   FSX_OPERATIONS  (60000)   COHERENCE_ROUNDS  turns of each process (250)   SEEDS ("1 2")
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
fsx=$tools/fsx-0.3.2
[ -x "$fsx" ] || fail "no fsx: run scripts/install-tools.sh test"
begin 512M
compile coherence
watch_clients
operations=${FSX_OPERATIONS:-60000}
# fsx keeps its mappings, and every other operation takes the lease back, after which the library waits longer each time: first as everywhere, for what goes wrong in between; then with less of them, and more goes directly.
cp "$repository/tests/fsx.toml" "$work/1.toml"
sed 's/^\(mapread\|mapwrite\) = .*/\1 = 0.0/; s/^\(truncate\|posix_fallocate\|punch_hole\|copy_file_range\|sendfile\|close_open\|invalidate\|posix_fadvise\) = .*/\1 = 0.002/' "$repository/tests/fsx.toml" >"$work/2.toml"
for seed in 1 2; do
    direct timeout 60 "$fsx" -q -f "$work/$seed.toml" -S $seed -N "$operations" -P "$work" "$dir/fsx.$seed" >"$work/fsx.log" 2>&1 || { tail -n 40 "$work/fsx.log"; fail "fsx, seed $seed"; }
done
was_direct fsx 100 100

# pair NAME SEED FIRST SECOND - two processes; what stands before each is empty or the library.
mkfifo "$work/one" "$work/two"
pair() {
    local name=$1 seed=$2 first=$3 second=$4 file=$dir/$1.$2 status=0
    rm -f "$work/model"
    truncate -s $((8 + 1048576)) "$work/model"
    : >"$file"
    exec 8<>"$work/one" 9<>"$work/two"
    LD_PRELOAD=$first timeout 60 "$programs/coherence" "$file" "$work/model" "$seed" "${COHERENCE_ROUNDS:-250}" 0 3<&8 4>&9 >"$work/pair.0" 2>&1 8<&- 9<&- &
    local zero=$!
    LD_PRELOAD=$second timeout 60 "$programs/coherence" "$file" "$work/model" "$seed" "${COHERENCE_ROUNDS:-250}" 1 3<&9 4>&8 >"$work/pair.1" 2>&1 8<&- 9<&- &
    local one=$!
    printf t >&8
    # The first that ends says how it went; the other would wait for its token.
    wait -n $zero $one || { cat "$work/pair.0" "$work/pair.1"; kill -9 $zero $one 2>/dev/null || true; fail "$name, seed $seed"; }
    wait $zero $one || { cat "$work/pair.0" "$work/pair.1"; fail "$name, seed $seed"; }
    exec 8<&- 9<&-
    # From outside: what the model says.
    python3 - "$file" "$work/model" <<'CHECK' || fail "$name, seed $seed: the file is not what the model says"
import sys
found = open(sys.argv[1], "rb").read()
model = open(sys.argv[2], "rb").read()
sys.exit(found != model[8:8 + int.from_bytes(model[:8], "little")])
CHECK
}
for seed in ${SEEDS:-1 2}; do
    for ways in "kernel-direct::$preload" "direct-kernel:$preload:" "direct-direct:$preload:$preload"; do
        IFS=: read -r name first second <<<"$ways"
        watch_again
        pair "$name" "$seed" "$first" "$second"
        # Fewer in the quick form: how many go directly depends on how the two processes meet.
        was_direct "$name, seed $seed" "${DIRECT_LEAST:-200}" "${DIRECT_LEAST:-200}" coherence
    done
done
finish
echo "fsx 2 x $operations operations; pairs of processes agree with the model"
