//! Errors of the device: which calls fail, and the lines of the log.

use super::{ALL, BLOCK, DEVICE_BLOCKS, content, free_on_device, make, open, pattern, pool};
use device::DeviceError;
use device::faulty::Fault;
use perdure_fs::FsError;
use pmem::BLOCK_BYTES;
use std::sync::{Arc, Mutex};

#[test]
fn silent_faults_are_errors_and_never_other_bytes() {
    for fault in [Fault::Torn, Fault::Lost, Fault::Misdirected] {
        let (_region, device, files) = pool();
        let expected = pattern(6, 6 * BLOCK_BYTES);
        let node = make(&files, "a", &expected);
        device.arm(fault, 0);
        assert_eq!(files.move_to_device(&node, 0..3), Ok(3), "it is silent");
        files.move_to_device(&node, 3..6).expect("good");
        let error = content(&files, &node).expect_err("other bytes");
        let FsError::Device(failure) = &error else {
            panic!("{fault:?}: {error}");
        };
        assert_eq!(failure.error, DeviceError::OtherBytes, "{fault:?}");
        // Other blocks are read, and the file can be written and removed.
        let mut good = vec![0; 2 * BLOCK_BYTES];
        files.read(&node, 4 * BLOCK, &mut good).expect("good");
        assert_eq!(good[..], expected[4 * BLOCK_BYTES..]);
        files
            .write(&node, 0, &expected[..4 * BLOCK_BYTES])
            .expect("whole blocks need no old byte");
        assert_eq!(content(&files, &node), Ok(expected), "{fault:?}");
        drop(node);
        files.unlink(&files.root(), b"a").expect("there");
        assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
    }
}

#[test]
fn without_its_device_a_pool_has_what_is_in_memory() {
    let (region, device, files) = pool();
    let cold = make(&files, "cold", &pattern(7, 2 * BLOCK_BYTES));
    let hot = make(&files, "hot", &pattern(8, 2 * BLOCK_BYTES));
    files.move_to_device(&cold, ALL).expect("good");
    drop((cold, hot));
    files.unmount();
    let files = open(&region, None, false);
    let node = |name: &str| files.lookup(&files.root(), name.as_bytes()).expect("there");
    let error = content(&files, &node("cold")).expect_err("the device is missing");
    assert!(matches!(&error, FsError::Device(fault) if fault.error == DeviceError::Missing));
    assert_eq!(
        content(&files, &node("hot")),
        Ok(pattern(8, 2 * BLOCK_BYTES))
    );
    make(&files, "new", &[1; 5000]);
    assert_eq!(
        files
            .attributes(&node("cold"))
            .expect("metadata")
            .size_bytes,
        2 * BLOCK
    );
    files.unmount();
    // It comes back while the pool is mounted.
    let files = open(&region, Some(Arc::clone(&device) as _), false);
    let cold = files.lookup(&files.root(), b"cold").expect("there");
    device.set_gone(true);
    assert!(content(&files, &cold).is_err());
    device.set_gone(false);
    assert_eq!(content(&files, &cold), Ok(pattern(7, 2 * BLOCK_BYTES)));
}

/// Keeps the lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Lines {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let mut lines = self.0.lock().expect("no panic");
        lines
            .last_mut()
            .expect("a line")
            .push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = self.clone();
        lines.0.lock().expect("no panic").push(String::new());
        event.record(&mut lines);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn each_error_has_a_line_that_names_file_block_and_device() {
    let (_region, device, files) = pool();
    let node = make(&files, "a", &pattern(11, 4 * BLOCK_BYTES));
    files.move_to_device(&node, 0..2).expect("good");
    let lines = Lines::default();
    let attempts: [&dyn Fn() -> Result<(), FsError>; 4] = [
        &|| content(&files, &node).map(drop),
        &|| files.write(&node, BLOCK + 5, b"small").map(drop),
        &|| files.bring_in(&node, ALL),
        &|| files.move_to_device(&node, 3..4).map(drop),
    ];
    device.set_gone(true);
    for attempt in attempts {
        let error = tracing::subscriber::with_default(lines.clone(), attempt);
        let error = error.expect_err("the device is gone");
        assert!(matches!(error, FsError::Device(_)), "{error}");
        let line = lines.0.lock().expect("no panic").pop().expect("a line");
        let inode = format!("inode={} ", node.number());
        for part in [
            inode.as_str(),
            "file_block=",
            "device=faulty ",
            "device_block=",
            "error=",
        ] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
        assert!(lines.0.lock().expect("no panic").is_empty(), "one line");
    }
}
