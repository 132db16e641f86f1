#!/usr/bin/env bash
# Crash states. The program is that of the tests' build (tests/run.py), with assertions and deliberate bugs compiled in.
#
#   tests/crash.sh bugs     the proof that each deliberate bug is noticed
#   tests/crash.sh share    CRASH_STATES (480,000) distinct states or more in at most CRASH_SECONDS
#                           (600), 150,000 of them with data on a device that fails: each sequence
#                           of one operation, and of those of two every CRASH_SHARE-th (4), four
#                           times as many with a device, from COMMIT_SEED on
#   tests/crash.sh long     as many as CRASH_SECONDS (28,800) give, by the release build, from a new
#                           seed (CRASH_SEED)
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
crashlab=$CARGO_TARGET_DIR/debug/perdure-crashlab

case ${1:-} in
bugs) exec "$crashlab" --prove-bugs ;;
share)
    exec "$crashlab" --states "${CRASH_STATES:-480000}" --device-states 150000 --seconds "${CRASH_SECONDS:-600}" \
        --share "${CRASH_SHARE:-4}" --seed "${COMMIT_SEED:-1}"
    ;;
long)
    cargo build --quiet --release --workspace --bin perdure-crashlab
    exec "$CARGO_TARGET_DIR/release/perdure-crashlab" --long --seconds "${CRASH_SECONDS:-28800}" \
        --seed "${CRASH_SEED:-$RANDOM$RANDOM}"
    ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | tail -n +2
    exit 2
    ;;
esac
