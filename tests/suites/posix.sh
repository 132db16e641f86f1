#!/usr/bin/env bash
# Mappings, O_DIRECT, O_APPEND, holes, locks, rename flags, O_TMPFILE, names, listings, attributes, times.
source "$(dirname "$0")/../lib.sh"
need python3
begin 2G "${1:-}"
python3 "$repository/tests/posix" "$dir" >"$work/out" 2>&1 || { grep -v " ok$" "$work/out"; fail "posix"; }
finish
grep -E 'skipped ' "$work/out" || true
echo "$(grep -c ' ok$' "$work/out") cases passed, $(grep -c '\.\.\. skipped' "$work/out") skipped (see the log)"
