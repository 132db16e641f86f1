#!/usr/bin/env bash
# Mappings that lie on blocks: what others write, truncate and unlink, children, parts, a stopped process; then the server is killed below processes that have a file mapped. The same program without the library and on its own tells whether it is the test that is wrong.
#
#   SERVER_KILLS (5)   STORM_SECONDS (3)
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "kills the server: it needs its own mount"
begin 512M
compile mmap
mkdir "$mnt/by-kernel" "$mnt/direct"
timeout 120 "$programs/mmap" "$mnt/by-kernel" || fail "without the library"
direct timeout 120 "$programs/mmap" "$mnt/direct" || fail "with the library"
"$PERDURE" stat "$mnt" | grep direct
# The file is not mapped by anybody any more, so all that a stopped process kept is free.
rm -r "$mnt/by-kernel" "$mnt/direct"

# shellcheck disable=SC2016
make='import sys, struct
name, seed, pages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(name, "wb") as file:
    for page in range(pages):
        file.write(struct.pack("<QQQ", seed, page, 1) * 170 + b"e" * 16)'
killed=0
for ((round = 1; round <= ${SERVER_KILLS:-5}; round++)); do
    python3 -c "$make" "$mnt/held" 21 512
    # It is the child that empties the file, perhaps only after the first look at what the last one said.
    rm -f "$work/holder"
    # Without a function, so that the number is the program's.
    LD_PRELOAD=$preload "$programs/mmap" hold "$mnt/held" 21 >"$work/holder" 2>&1 &
    holder=$!
    for _ in {1..500}; do ! grep -qs mapped "$work/holder" || break; sleep 0.02; done
    grep -q 'mapped.* 1$' "$work/holder" || fail "not on blocks: $(cat "$work/holder")"
    stopped=
    [ $((round % 2)) != 0 ] || { stop_process "$holder"; stopped=yes; }
    kill_server
    if [ -n "$stopped" ]; then
        # The next server waits, then names the process, which gives its blocks back later.
        umount -l "$mnt" 2>/dev/null || true
        mount_pool
        grep -q "process $holder is in the middle" "$log" || fail "the stopped process is not named: $(tail -n 3 "$log")"
        kill -CONT "$holder"
        for _ in {1..1000}; do [ -n "$(head -c 65536 "$pool/direct/late-$holder"-* | tr -d '\0' | head -c 1)" ] || break; sleep 0.02; done
    else
        umount -l "$mnt" 2>/dev/null || true
        mount_pool
    fi
    # Others get what was the file's.
    rm "$mnt/held"
    for other in 31 32 33; do python3 -c "$make" "$mnt/other.$other" $other 20000; done
    kill "$holder"
    wait "$holder" || { cat "$work/holder"; fail "round $round: a mapping showed what is not its file's"; }
    rm "$mnt"/other.*
    umount_pool
    fsck_clean
    mount_pool
    killed=$((killed + 1))
done
finish
echo "mappings show their file and nothing else; $killed servers killed below them"
