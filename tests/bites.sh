#!/usr/bin/env bash
# Tests that need a feature: deliberate bugs outside of crash exploration, and the allocator under a scheduler of interleavings.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
cargo test --package perdure-alloc --features deliberate-bugs --test bites
cargo test --package perdure-txn --features deliberate-bugs --test bites --test torn --test held
cargo test --package perdure-readcache --features deliberate-bugs --lib interleavings
cargo test --package perdure-descriptors --features deliberate-bugs --lib interleavings
cargo test --package perdure-fs --features deliberate-bugs --test copies
cargo test --package perdure-fs --features deliberate-bugs --test secret --test owners --test residue --test tampered
cargo test --package perdure-crashlab --features deliberate-bugs --test in_place
cargo test --package perdure-crashlab --features deliberate-bugs --test hostile
cargo test --package perdure-server --features deliberate-bugs --test direct_maps
cargo test --package perdure-alloc --features interleavings --test interleavings
echo "deliberate bugs are noticed, interleavings are sound"
