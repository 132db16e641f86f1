#!/usr/bin/env bash
# tar round trip: a tree with hard links, symbolic links, sparse files, extended attributes, odd names, owners, modes
# and nanosecond times goes onto the mount and comes back unchanged, also after the server was killed.
source "$(dirname "$0")/../lib.sh"
need tar setfattr getfattr python3
begin 1G "${1:-}"
source_tree=$work/tree
mkdir "$source_tree"
python3 "$repository/tests/tree.py" "$source_tree"
flags=(--xattrs --xattrs-include='user.*' --sparse --numeric-owner --format=posix)
[ "$(id -u)" != 0 ] || chown -R 1234:4321 "$source_tree/owned"

tar -C "$source_tree" "${flags[@]}" -cf "$work/first.tar" .
mkdir "$dir/tree"
tar -C "$dir/tree" "${flags[@]}" -xpf "$work/first.tar"
[ -n "$given" ] || remount
tar -C "$dir/tree" "${flags[@]}" --compare -f "$work/first.tar"
tar -C "$dir/tree" "${flags[@]}" -cf "$work/second.tar" .
mkdir "$work/back"
tar -C "$work/back" "${flags[@]}" -xpf "$work/second.tar"

describe "$source_tree" >"$work/expected"
for tree in "$dir/tree" "$work/back"; do
    describe "$tree" >"$work/found"
    diff -a "$work/expected" "$work/found" || fail "$tree differs"
done
[ "$(stat -c %b "$dir/tree/sparse")" -lt 400 ] || fail "the sparse file is no longer sparse"
entries=$(find "$dir/tree" | wc -l)
finish
echo "$entries entries there and back"
