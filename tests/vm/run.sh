#!/usr/bin/env bash
# Persistent memory in QEMU, without KVM: pools of class dax on fsdax and on device-DAX under load, the machine is
# SIGKILLed, booted again, every acknowledged operation is checked, fsck finds nothing.
#
#   ROUNDS (3)   SEED (1)   PERDURE (the release build)
set -euo pipefail
source "$(dirname "$0")/common.sh"
perdure=${PERDURE:-$target/release/perdure}
[ -x "$perdure" ] || die "no $perdure: cargo build --release -p perdure-cli"
"$here/build-image.sh"
RANDOM=${SEED:-1}
log=$lab/run.log

rm -f "$lab/nvdimm0" "$lab/nvdimm1"
"$here/boot.sh" probe.sh write >"$log" 2>&1 & probe=$!
wait $probe || { cat "$log"; die "the lab itself does not work: no DAX in the guest"; }
echo "guest: kernel $(head -n 1 "$log"), MAP_SYNC on fsdax and device-DAX"
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
    rm -f "$lab/nvdimm0" "$lab/nvdimm1"
    seed=${SEED:-1}.$round
    export PROGRAMS=$perdure
    status=0
    KILL_AFTER=$((3 + RANDOM % 10)) "$here/boot.sh" load.sh "$seed" >"$log" 2>&1 || status=$?
    [ $status = 137 ] || { tail -n 40 "$log"; die "round $round: status $status before the power cut"; }
    seen() { awk -v worker="$1" '$1 == worker && NF == 2 {number = $2} END {print number + 0}' "$log"; }
    zero=$(seen 0) one=$(seen 1)
    [ $((zero * one)) -gt 0 ] || { tail -n 40 "$log"; die "round $round: no operation was acknowledged"; }
    "$here/boot.sh" verify.sh "$seed" "$zero" "$one" >"$log" 2>&1 || { cat "$log"; die "round $round (SEED=${SEED:-1}) failed"; }
    grep '^worker' "$log" | sed "s/^/round $round: /"
done
rm -f "$lab/nvdimm0" "$lab/nvdimm1"
echo "$((round - 1)) power cuts on fsdax and device-DAX, nothing lost"
