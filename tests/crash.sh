#!/usr/bin/env bash
# Crash states: at least 200,000 distinct ones within ten minutes, then proof that deliberate mistakes are noticed.
#
#   tests/crash.sh [long]    long: for CRASH_SECONDS (28800), with a new seed
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = long ]; then
    exec cargo run --quiet --release -p perdure-crashlab -- --long --seconds "${CRASH_SECONDS:-28800}" --seed "${SEED:-$(date +%s)}"
fi
cargo run --quiet --release -p perdure-crashlab --features deliberate-bugs -- --prove-bugs
cargo run --quiet --release -p perdure-crashlab -- --states 200000 --seconds 600
