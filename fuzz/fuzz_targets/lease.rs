//! A leased file whose holder writes whatever he likes into what he can reach, before a power cut or while the server folds; and a lease that is damaged.

#![no_main]

use crashlab::hostile::Sample;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SAMPLE: LazyLock<Sample> = LazyLock::new(Sample::new);

fuzz_target!(|input: &[u8]| {
    if let Err(reason) = SAMPLE.examine(input) {
        panic!("{reason}");
    }
});
