//! A pool with content on a device, both damaged in ways that get past the first check: mounted,
//! read, changed while the device fails, unmounted or killed, and mounted again.

#![no_main]

use crashlab::mutation::on_device::DeviceSample;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SAMPLE: LazyLock<DeviceSample> = LazyLock::new(DeviceSample::new);

fuzz_target!(|input: &[u8]| {
    if let Err(reason) = SAMPLE.examine(input) {
        panic!("{reason}");
    }
});
