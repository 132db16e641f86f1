//! A request of the kernel: any bytes, read from the device and in an entry of a queue.

#![no_main]

use std::sync::LazyLock;

use fuse::fuzzing::Fuzzed;
use libfuzzer_sys::fuzz_target;

static FUZZED: LazyLock<Fuzzed> = LazyLock::new(|| {
    let sink = std::fs::File::options().write(true).open("/dev/null");
    Fuzzed::new(sink.expect("a sink").into())
});

fuzz_target!(|input: &[u8]| FUZZED.request(input));
