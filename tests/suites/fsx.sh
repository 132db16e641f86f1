#!/usr/bin/env bash
# fsx 0.3.2: random reads, writes, mappings, truncations, fallocate, punch and copies on one file, each read verified.
#
# On a pool of its own the server copies every block that it reads to DRAM: what is read must be what was written last all the same.
#
#   FSX_OPERATIONS  per seed (200000)     FSX_SEEDS  ("1 2 3 4 5")
source "$(dirname "$0")/../lib.sh"
fsx=$tools/fsx-0.3.2
[ -x "$fsx" ] || fail "no fsx: run scripts/install-tools.sh test"
if [ -n "${1:-}" ]; then
    begin 1G "$1"
else
    make_pool 1G
    mount_pool --read-cache on:64M --read-cache-threshold 1
    dir=$mnt
fi
operations=${FSX_OPERATIONS:-200000}
read -ra seeds <<<"${FSX_SEEDS:-1 2 3 4 5}"
config=$repository/tests/fsx.toml

# run SEED - the last seed works on a larger file with larger operations.
run() {
    if [ "$1" = 5 ]; then sed 's/^flen = .*/flen = 4194304/; s/^max = .*/max = 65536/' "$config"; else cat "$config"; fi >"$work/$1.toml"
    "$fsx" -q -f "$work/$1.toml" -S "$1" -N "$operations" -P "$work" "$dir/fsx.$1" >"$work/$1.log" 2>&1
}
# Two at a time: the seeds are independent files of one mount.
for seed in "${seeds[@]}"; do echo "$seed"; done >"$work/seeds"
worker() { local seed; while read -r seed; do run "$seed" || { tail -n 40 "$work/$seed.log"; echo "seed $seed failed"; return 1; }; done; }
worker < <(awk 'NR % 2 == 1' "$work/seeds") & one=$!
worker < <(awk 'NR % 2 == 0' "$work/seeds") & two=$!
wait $one || fail "fsx"
wait $two || fail "fsx"
hits=no
[ -n "${1:-}" ] || hits=$("$PERDURE" stat "$mnt" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["server"]["read_cache"]["hits"])')
[ "$hits" != 0 ] || fail "no read came from DRAM"
finish
echo "${#seeds[@]} seeds x $operations operations, $hits reads from DRAM"
