#!/usr/bin/env bash
# Runs the programs of this directory on DIRECTORY, with PRELOAD.so if one is named. Each says PASS or FAIL.
#
#   tests/direct/run.sh DIRECTORY [PRELOAD.so]
set -euo pipefail

case $# in 1 | 2) ;; *) echo "usage: $0 DIRECTORY [PRELOAD.so]" >&2; exit 2 ;; esac
directory=$(cd "$1" && pwd)
preload=${2:+$(realpath "$2")}
sources=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/perdure-direct.XXXXXX")
place=$(mktemp -d "$directory/direct.XXXXXX")
trap 'rm -rf "$work" "$place"' EXIT

failed=0
run() {
    local name=$1
    shift
    cc -std=gnu17 -Wall -Wextra -pthread "$@" -o "$work/$name"
    mkdir "$place/$name"
    if ! PERDURE_DIRECT_AFTER=16 LD_PRELOAD=$preload timeout 120 "$work/$name" "$place/$name"; then
        echo "FAIL $name"
        failed=1
    fi
}

for name in positions storm calls edges reuse signals status owner malloc; do
    run "$name" -O1 "$sources/$name.c"
done
for name in positions calls; do
    run "$name-fortified" -O2 -D_FORTIFY_SOURCE=2 "$sources/$name.c"
done
exit $failed
