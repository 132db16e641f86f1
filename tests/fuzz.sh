#!/usr/bin/env bash
# Runs every fuzz target for a number of seconds: tests/fuzz.sh [SECONDS [TARGET...]]
# What was found before (fuzz/corpus, kept) is tried first, then the valid structures of fuzz/seeds. A crash leaves its
# input under fuzz/artifacts/TARGET.
#
# libFuzzer by plain cargo: the stable compiler has the coverage instrumentation that `cargo fuzz` would ask a nightly
# for. Memory is safe by other means (few unsafe blocks, tested); without the address sanitizer ten times as many inputs
# are tried.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
targets=("$@")
if [ $# = 0 ]; then for source in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$source" .rs)"); done; fi
target_folder=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# tests/run.py has built it; `make fuzz` builds it here.
crashlab=$target_folder/debug/perdure-crashlab
[ -x "$crashlab" ] || CARGO_TARGET_DIR=$target_folder cargo build --quiet -p perdure-crashlab
"$crashlab" --fuzz-seeds fuzz/seeds
# With --target, build scripts and procedural macros are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks" \
    cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$target_folder/fuzz"
programs=$target_folder/fuzz/$host/release
run() {
    local target=$1 log=$target_folder/fuzz/$1.log
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target" "fuzz/artifacts/$target"
    if ! "$programs/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "$target: failed; again: $programs/$target $(grep -o 'fuzz/artifacts/[^ ]*' "$log" | tail -n 1)"
        return 1
    fi
    echo "$target: $(awk '/number_of_executed_units/ {print $2}' "$log") inputs in $seconds s"
}
# Two at a time.
status=0
for ((at = 0; at < ${#targets[@]}; at += 2)); do
    run "${targets[at]}" & first=$!
    [ $((at + 1)) = ${#targets[@]} ] || run "${targets[at + 1]}" || status=1
    wait $first || status=1
done
[ $status = 0 ] || exit 1
echo "${#targets[@]} fuzz targets, $seconds s each: nothing found"
