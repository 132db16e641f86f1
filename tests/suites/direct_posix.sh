#!/usr/bin/env bash
# The programs of tests/direct on a mount with the library: positions, duplicates, children, storms of threads, signals, small print. Direct access was used by each of them.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
begin 512M
watch_clients
TMPDIR=$work bash "$repository/tests/direct/run.sh" "$dir" "$preload" 2>&1 | tee "$work/run.log" || fail "tests/direct/run.sh"
names=0
for name in positions storm calls edges reuse signals status owner malloc positions-fortified calls-fortified; do
    # The kernel keeps so much of a name.
    was_direct "$name" 100 100 "${name:0:15}"
    names=$((names + 1))
done
finish
echo "$names programs, all of them directly"
