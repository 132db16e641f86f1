#!/usr/bin/env bash
# cargo builds, tests and rebuilds a small workspace on the mount: many small files, hard links, mappings, locks.
source "$(dirname "$0")/../lib.sh"
need cargo
begin 1G "${1:-}"
cd "$dir"
export CARGO_TARGET_DIR=$dir/target CARGO_NET_OFFLINE=true
cargo new -q --vcs none --lib words
cargo new -q --vcs none --bin count
cat >words/src/lib.rs <<'END'
/// Number of words in a text.
pub fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[test]
fn counts() {
    assert_eq!(words("one two  three"), 3);
}
END
echo 'words = { path = "../words" }' >>count/Cargo.toml
echo 'fn main() { println!("{}", words::words("durable at return")); }' >count/src/main.rs
printf '[workspace]\nresolver = "3"\nmembers = ["words", "count"]\n' >Cargo.toml
cargo test -q --workspace
[ "$(cargo run -q -p count)" = 3 ] || fail "the built program is wrong"
touch words/src/lib.rs
cargo build -q --release
[ "$(target/release/count)" = 3 ] || fail "the release build is wrong"
cd /
finish
echo "built, tested, rebuilt"
