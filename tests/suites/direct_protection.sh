#!/usr/bin/env bash
# Another user: on its own files directly, on those of others by the kernel. Then a program of that user that lies to the server in every way: it gets no segment of others, the server lives, files of others are what they were.
source "$(dirname "$0")/../lib.sh"
source "$repository/tests/direct/lib.sh"
[ -z "${1:-}" ] || fail "asks the server: it needs its own mount"
[ "$(id -u)" = 0 ] || fail "needs root, to be two users"
need setpriv python3
begin 256M
compile hostile
compile became
user=12345
cp "$preload" "$work/library.so"
cp "$repository/tests/load/domains.py" "$work/domains.py"
chmod 755 "$work" "$work/library.so" "$work/domains.py" "$programs" "$programs"/*
as_user() { setpriv --reuid=$user --regid=$user --clear-groups "$@"; }
python=$(python3 -c 'import sys; print(sys.executable)')
as_user test -x "$python" || python=/usr/bin/python3
direct_user() { as_user env LD_PRELOAD="$work/library.so" "$python" "$work/domains.py" "$@"; }
mkdir -m 777 "$mnt/home"
secret="nobody else may read this, $RANDOM$RANDOM"
python3 "$work/domains.py" make "$mnt" "$secret"
sums() { (cd "$mnt" && sha256sum readable secret others); }
before=$(sums)

watch_clients
direct_user own "$mnt" || fail "own file"
was_direct "own file" 50 1500
watch_again
direct_user others "$mnt" || fail "somebody else's file"
read -ra counts < <(python3 "$repository/tests/load/clients.py" count "$clients")
[ "${counts[*]}" = "0 0" ] || fail "${counts[0]} direct reads of somebody else's file"
note "somebody else's file: by the kernel"

# Who asks counts, not who has met the server.
head -c 200000 /dev/urandom >"$mnt/home/roots"
head -c 200000 /dev/urandom >"$mnt/home/somebodys"
chown 777:777 "$mnt/home/somebodys"
head -c 200000 /dev/urandom >"$mnt/home/somebodys"
head -c 200000 /dev/urandom | as_user tee "$mnt/home/users" >/dev/null
"$programs/became" $user "$mnt/home/roots" "$mnt/home/somebodys" "$mnt/home/users" || fail "a process that has become another user's"
setpriv --bounding-set=-dac_override,-dac_read_search "$programs/became" powerless "$mnt/home/roots" "$mnt/home/somebodys" || fail "root without power"

for seed in ${SEEDS:-1 2 3}; do
    python3 -c "print('x' * 200000)" | as_user tee "$mnt/home/hostile" >/dev/null
    as_user timeout 60 "$programs/hostile" "$mnt/home/hostile" "$mnt/readable" "$mnt/home" "$secret" "$seed" || fail "hostile, seed $seed"
    kill -0 "$server" || fail "the server is dead"
    [ "$(sums)" = "$before" ] || fail "files of others changed"
    # Who comes next is served.
    direct_user own "$mnt" || fail "own file, after hostile $seed"
done
watch_again
direct_user own "$mnt" || fail "own file, at the end"
was_direct "own file, after all that" 50 1500
umount_pool
fsck_clean
mount_pool
[ "$(sums)" = "$before" ] || fail "files of others changed"
umount_pool
mount_pool --no-direct
"$PERDURE" stat "$mnt" | grep -q "^direct" && fail "a mount with --no-direct counts direct access"
direct_user own "$mnt" || fail "own file, with --no-direct"
"$PERDURE" run "$pool" -v -- true 2>&1 | grep -q "without direct access" || fail "perdure run does not say that there is no direct access"
note "with --no-direct: by the kernel"
finish
echo "users are kept apart; the server outlived lies"
