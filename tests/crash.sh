#!/usr/bin/env bash
# Crash states: first the proof that deliberate bugs are noticed, then exploration.
#
#   tests/crash.sh          200,000 distinct states or more, at most CRASH_SECONDS (600)
#   tests/crash.sh long     as many as there is time for in CRASH_SECONDS (28,800), from a new seed (CRASH_SEED)
#   tests/crash.sh bugs     the proof alone, by the program of the tests' build
#   tests/crash.sh share    by the same program: every CRASH_SHARE-th (4) sequence of two operations;
#                           COMMIT_SEED chooses the first
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
crashlab=$CARGO_TARGET_DIR/release/perdure-crashlab
# Of the whole workspace, so that the dependencies are those that every other build has.
build() { cargo build --quiet --release --workspace --bin perdure-crashlab "$@"; }

case ${1:-} in
bugs) exec "$CARGO_TARGET_DIR/debug/perdure-crashlab" --prove-bugs ;;
share)
    exec "$CARGO_TARGET_DIR/debug/perdure-crashlab" --states "${CRASH_STATES:-300000}" --seconds "${CRASH_SECONDS:-600}" \
        --share "${CRASH_SHARE:-4}" --seed "${COMMIT_SEED:-1}"
    ;;
long)
    build
    exec "$crashlab" --long --seconds "${CRASH_SECONDS:-28800}" --seed "${CRASH_SEED:-$RANDOM$RANDOM}"
    ;;
esac
build --features perdure-crashlab/deliberate-bugs
"$crashlab" --prove-bugs
build
exec "$crashlab" --states "${CRASH_STATES:-200000}" --seconds "${CRASH_SECONDS:-600}"
