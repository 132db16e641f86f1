#!/usr/bin/env bash
# Writers × file states × questions, through the kernel's page cache. Stale pages after asynchronous
# O_DIRECT writes. Mapped stores without room.
source "$(dirname "$0")/../lib.sh"
folder=$repository/tests/page_cache
need cc python3 tar
preload=''
if [ -z "${1:-}" ]; then
    source "$repository/tests/direct/lib.sh"
fi
begin 256M "${1:-}"
store=$work/store
cc -std=gnu17 -O1 -Wall -Wextra "$folder/store.c" -o "$store" || fail "cc store.c"
cc -std=gnu17 -O1 -Wall -Wextra -pthread "$folder/stale.c" -o "$work/stale" || fail "cc stale.c"
mkdir "$dir/ask" "$dir/keep"

answers=$(python3 "$folder/matrix.py" ask "$dir/ask" "$store" "$preload") || { echo "$answers"; fail "wrong answers"; }
note "$answers"
stale=$("$work/stale" "$dir/stale" "${STALE_WRITES:-400}") || { echo "$stale"; fail "stale pages"; }
note "$stale"
if [ -z "$given" ]; then
    python3 "$folder/matrix.py" keep "$dir/keep" "$store" "$preload" || fail "keep"
    remount
    python3 "$folder/matrix.py" check "$dir/keep" || fail "lost by kill -9"
    finish
    # As an ordinary user's server, which cannot open files by handle.
    rm -rf "$pool"
    make_pool 256M
    printf '#!/bin/sh\nexec setpriv --bounding-set=-dac_read_search %s "$@"\n' "$PERDURE" >"$work/perdure"
    chmod +x "$work/perdure"
    PERDURE=$work/perdure mount_pool
    mkdir "$dir/ask"
    without=$(python3 "$folder/matrix.py" ask "$dir/ask" "$store" "$preload") || { echo "$without"; fail "wrong answers without handles"; }
    note "without handles: $without"
    finish
    # A small pool that is full.
    rm -rf "$pool"
    begin 32M
    python3 "$folder/full.py" "$dir" || fail "a store without room"
    finish
    "$PERDURE" fsck "$pool" >>"$log" 2>&1 || fail "fsck after stores without room"
fi
echo "$answers; $stale"
