#!/usr/bin/env bash
# Runs the steps of `make test`, or only those named; one line each, logs under target/suites/.
#
#   tests/run.sh            every step: what CI runs
#   tests/run.sh NAME...    these
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin:${PERDURE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/perdure/tools}/bin
# The build contains the deliberate bugs; a test switches one on. So one build has all tests.
features=$(printf 'perdure-%s/deliberate-bugs,' alloc txn readcache descriptors fs crashlab server)
nextest="cargo-nextest-0.9.151 nextest run"
logs=$CARGO_TARGET_DIR/suites
mkdir -p "$logs"
wanted=" $* "
passed=0 failed=0

# step NAME SECONDS COMMAND... - one line: result, name, time, and what the step's last line says.
step() {
    local name=$1 limit=$2 start=$SECONDS result status
    shift 2
    [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ]; then result=ok; passed=$((passed + 1)); else result=FAILED; failed=$((failed + 1)); fi
    printf '%-6s %-12s %5d s  %s\n' $result "$name" $((SECONDS - start)) "$(tail -n 1 "$logs/$name.log" | cut -c 1-90)"
    [ $status = 0 ] && return
    [ $status != 124 ] || echo "       stopped: over its limit of $limit s"
    tail -n 40 "$logs/$name.log" | sed 's/^/       /'
    echo "       all of it: $logs/$name.log"
    [ "$name" != build ] || { echo "nothing else can run without the build"; echo "0 passed, 1 failed"; exit 1; }
}

step build   1500 cargo build --release --workspace
step format    60 cargo fmt --all --check
step shell     60 tests/shell.sh
step clippy  1200 cargo clippy --workspace --all-targets -- -D warnings
step docs     300 env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace
# shellcheck disable=SC2086
step units   2400 $nextest --workspace --no-fail-fast --features "$features"
step doctests 900 cargo test --workspace --doc --features "$features"
# shellcheck disable=SC2086
step schedules 600 $nextest -p perdure-alloc --features interleavings --test interleavings
step deny     120 tests/deny.sh
for suite in tests/suites/*.sh; do
    step "$(basename "$suite" .sh)" 900 bash "$suite"
done
step crash    900 tests/crash.sh
step demo     600 scripts/demo.sh
step fuzz     600 tests/fuzz.sh 10
step bench    600 tests/bench.sh

if [ $((passed + failed)) = 0 ]; then echo "no step is named:$wanted"; exit 2; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
