# shellcheck shell=bash disable=SC2154
# Sourced by the suites of direct access, after tests/lib.sh.
#
#   PERDURE_PRELOAD    the library under test (default: beside the command)
#   DIRECT_READS=any   with POOL_CLASS=log, whose programs write through the server: any number of
#                      reads between their writes may be direct
preload=${PERDURE_PRELOAD:-$(dirname "$PERDURE")/libperdure_preload.so}
[ -f "$preload" ] || fail "no $preload: build it with 'make suites' or set PERDURE_PRELOAD"
preload=$(realpath "$preload")
programs=$work/programs
clients=$work/clients.json
mkdir "$programs"

# By operations and not by times, so that it is certain which ones are direct.
export PERDURE_DIRECT_AFTER=16

# direct COMMAND... - with the library. Children of a function's background job have it as well.
direct() { env LD_PRELOAD="$preload" "$@"; }

# stop_process PID - until each of its threads stands still. The signal is on its way only when kill returns: a thread that waits for a processor keeps the others from hearing of it, and they run on.
stop_process() {
    kill -STOP "$1"
    for _ in {1..500}; do
        [ -n "$(sed -n 's/.*) \([^Tt]\) .*/\1/p' /proc/"$1"/task/*/stat 2>/dev/null)" ] || return 0
        sleep 0.02
    done
    fail "process $1 does not stop"
}

# compile NAME... - programs of tests/direct, as $programs/NAME.
compile() { local name; for name; do cc -std=gnu17 -O1 -Wall -Wextra -pthread "$repository/tests/direct/$name.c" -o "$programs/$name" || fail "cc $name"; done; }

# watch_clients - from here on it is known who reads and writes directly.
watch_clients() {
    rm -f "$clients"
    python3 "$repository/tests/load/clients.py" watch "$pool/control" "$clients" &
    watcher=$!
    for _ in {1..200}; do [ ! -e "$clients" ] || return 0; sleep 0.02; done
    fail "the server does not say who its clients are"
}
watch_again() { kill -9 "$watcher"; wait "$watcher" 2>/dev/null || true; watch_clients; }

# was_direct WHAT READS WRITES [COMMAND] - at least so many were direct, by all processes or those of this name.
was_direct() {
    local what=$1 reads=$2 writes=$3 counts
    shift 3
    sleep 0.05
    read -ra counts < <(python3 "$repository/tests/load/clients.py" count "$clients" "$@")
    if [ "${POOL_CLASS:-}" = log ]; then
        writes=0
        [ "${DIRECT_READS:-}" != any ] || reads=0
        [ "${counts[1]}" = 0 ] || fail "$what: ${counts[1]} direct writes to a pool with a log"
    fi
    if [ "${counts[0]}" -lt "$reads" ] || [ "${counts[1]}" -lt "$writes" ]; then
        python3 "$repository/tests/load/clients.py" table "$clients"
        fail "$what: ${counts[0]} direct reads and ${counts[1]} direct writes, $reads and $writes expected"
    fi
    note "$what: ${counts[0]} direct reads, ${counts[1]} direct writes"
}
