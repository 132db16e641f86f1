//! A whole pool, damaged in ways that get past the first check: mounted, read, used, unmounted, mounted again.

#![no_main]

use crashlab::mutation::{Sample, examine};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SAMPLE: LazyLock<Sample> = LazyLock::new(Sample::new);

fuzz_target!(|input: &[u8]| {
    examine(&SAMPLE.mutate(input));
});
