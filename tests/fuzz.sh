#!/usr/bin/env bash
# Every fuzz target for SECONDS (10) each, from its stored corpus if there is one. libFuzzer by plain cargo: the stable
# compiler has the coverage instrumentation that cargo-fuzz would ask for.
#
#   tests/fuzz.sh [SECONDS [TARGET...]]
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:-10}
shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-$PWD/../target}/fuzz
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks"
cargo build --quiet --release --target "$host" --target-dir "$build"
targets=("$@")
[ $# -gt 0 ] || for source in fuzz_targets/*.rs; do targets+=("$(basename "$source" .rs)"); done
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    "$build/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 >"$build/$target.log" 2>&1 || {
        tail -n 40 "$build/$target.log"
        echo "again: $build/$host/release/$target fuzz/artifacts/$target/..."
        exit 1
    }
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log") inputs"
done
echo "${#targets[@]} targets, $seconds s each"
