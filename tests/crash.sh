#!/usr/bin/env bash
# Crash states: first the proof that deliberate bugs are noticed, then exploration.
#
#   tests/crash.sh          200,000 distinct states, at most CRASH_SECONDS (600)
#   tests/crash.sh long     as many as there is time for in CRASH_SECONDS (28,800), from a new seed (CRASH_SEED)
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
run=(cargo run --quiet --release -p perdure-crashlab)

if [ "${1:-}" = long ]; then
    exec "${run[@]}" -- --long --seconds "${CRASH_SECONDS:-28800}" --seed "${CRASH_SEED:-$RANDOM$RANDOM}"
fi
"${run[@]}" --features deliberate-bugs -- --prove-bugs
exec "${run[@]}" -- --states "${CRASH_STATES:-200000}" --seconds "${CRASH_SECONDS:-600}"
