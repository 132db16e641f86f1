#!/usr/bin/env bash
# Runs every fuzz target for a number of seconds: tests/fuzz.sh [SECONDS] [TARGET...]
# What was found before (fuzz/corpus, kept) is tried first. A crash leaves its input under fuzz/artifacts/TARGET;
# `cargo +nightly fuzz run TARGET INPUT` shows it again.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(superblock record inode dentry pool)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

cargo run --quiet --release -p perdure-crashlab --example fuzz_seeds fuzz/seeds
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "no nightly toolchain (rustup toolchain install nightly): the fuzz targets were not run"
    exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --quiet --locked cargo-fuzz
fi
# Memory is safe by other means (few unsafe blocks, tested); without the sanitizer ten times as many inputs are tried.
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz
cargo +nightly fuzz build --sanitizer none
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    if ! cargo +nightly fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "$target: failed"
        exit 1
    fi
    echo "$target: $(awk '/number_of_executed_units/ {print $2}' "$log") inputs in $seconds s"
done
echo "${#targets[@]} fuzz targets, $seconds s each: nothing found"
