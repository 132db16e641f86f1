#!/usr/bin/env bash
# fsx 0.3.2: random reads, writes, mappings, truncations, fallocate, punch and copies on one file, each read verified.
#
#   FSX_OPERATIONS  per seed (200000)     FSX_SEEDS  ("1 2 3 4 5")
source "$(dirname "$0")/../lib.sh"
fsx=$tools/fsx-0.3.2
[ -x "$fsx" ] || fail "no fsx: run scripts/install-tools.sh test"
begin 1G "${1:-}"
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
finish
echo "${#seeds[@]} seeds x $operations operations"
