#!/usr/bin/env bash
# `perdure cp` in and out of a pool that is not mounted: a tree with everything in it comes back unchanged, and the
# mount shows the same.
source "$(dirname "$0")/../lib.sh"
[ -z "${1:-}" ] || fail "copies into a pool, not into a directory"
need python3 getfattr
make_pool 512M
mkdir "$work/tree" "$work/back"
python3 "$repository/tests/tree.py" "$work/tree"
"$PERDURE" cp -r "$work/tree" "$pool:/tree" >"$work/said" 2>&1 || { cat "$work/said"; fail "cp into the pool"; }
fsck_clean
"$PERDURE" cp -r "$pool:/tree" "$work/back/" >"$work/said" 2>&1 || { cat "$work/said"; fail "cp out of the pool"; }
describe "$work/tree" >"$work/expected"
describe "$work/back/tree" >"$work/found"
diff -a "$work/expected" "$work/found" || fail "the copy out of the pool differs"
mount_pool
describe "$mnt/tree" >"$work/found"
diff -a "$work/expected" "$work/found" || fail "the mount shows something else"
umount_pool
fsck_clean
echo "$(find "$work/tree" | wc -l) entries in and out"
