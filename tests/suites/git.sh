#!/usr/bin/env bash
# git: clone this repository onto the mount, check every object, commit, repack, check again; then a checkout that is
# compared file by file with the original.
source "$(dirname "$0")/../lib.sh"
need git
begin 2G "${1:-}"
export GIT_CONFIG_GLOBAL=$work/gitconfig GIT_CONFIG_NOSYSTEM=1
git config --global safe.directory '*'
git config --global user.name test
git config --global user.email test@localhost

git clone -q --no-local "file://$repository" "$dir/clone"
cd "$dir/clone"
git fsck --strict --full
git switch -q -c work
for number in {1..50}; do
    echo "line $number" >>notes
    git add notes
    git commit -q -m "commit $number"
done
git gc -q --aggressive --prune=now
[ -z "${given:-}" ] && { cd /; remount; cd "$dir/clone"; }
git fsck --strict --full
[ "$(git rev-list --count HEAD)" = $(($(git -C "$repository" rev-list --count HEAD) + 50)) ] || fail "commits are missing"
[ -z "$(git status --porcelain)" ] || fail "the work tree changed by itself"
git -C "$repository" archive HEAD | tar -x -C "$work" --one-top-level=original
git archive HEAD~50 | tar -x -C "$work" --one-top-level=copy
diff -r "$work/original" "$work/copy"
cd /
finish
echo "clone, 50 commits, gc, fsck"
