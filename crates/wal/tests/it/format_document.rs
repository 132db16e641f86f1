//! The log's tables of `docs/FORMAT.md` are printed from the code.

use perdure_wal::{BatchHeader, RootBlock};
use std::fmt::Write;
use std::mem::offset_of;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");

/// Bytes of the field that `get` returns.
fn field_bytes<T, F>(_get: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A table of all fields of a struct; it fails if one is left out or padding stands between two.
macro_rules! fields {
    ($type:ty { $($field:ident: $meaning:expr,)* }) => {{
        let rows = [$((offset_of!($type, $field), field_bytes(|value: &$type| &value.$field),
            stringify!($field), $meaning),)*];
        let mut table =
            String::from("| offset | bytes | field | meaning |\n| ---: | ---: | --- | --- |\n");
        let mut end = 0;
        for (offset, bytes, name, meaning) in rows {
            assert_eq!(offset, end, "{}.{name}: a field is missing", stringify!($type));
            end = offset + bytes;
            writeln!(table, "| {offset} | {bytes} | `{name}` | {meaning} |").expect("a string grows");
        }
        assert_eq!(end, size_of::<$type>(), "a field of {} is missing", stringify!($type));
        table
    }};
}

fn root() -> String {
    fields!(RootBlock {
        magic: "the bytes `PerdLog` and a zero",
        check: "CRC32C of the block's bytes from 12 on",
        version: "format of the log: 1",
        identity: "of the pool",
        generation: "number of this root, from 1 on; it lies in block `generation` mod 2",
        epoch: "the mount that wrote it; 0: none yet",
        position: "where replay begins, in bytes since the log was made; a multiple of 4,096",
        number: "of the first batch to replay; the first of all is 1",
        sequence: "the image has all records up to this one",
        user: "of the pool; the log does not read it",
        ring_bytes: "bytes of the ring, a multiple of 4,096",
        previous: "`check` of the batch before; CRC32C of the identity before the first one",
        reserved: "0",
        files: "of the pool, too",
    })
}

fn batch() -> String {
    fields!(BatchHeader {
        magic: "the bytes `PdLB`",
        check: "CRC32C of the header's bytes from 8 on",
        previous: "`check` of the batch before",
        body: "CRC32C of the entries",
        payload_bytes: "of the entries",
        version: "format of batches: 1",
        in_flight: "batches before it that were not known to be durable; 65,535: unknown",
        number: "of this batch",
        position: "of this batch, in bytes since the log was made",
        epoch: "the mount that wrote it",
        first: "number of its first record",
        last: "number of its last record",
    })
}

/// The document with its printed sections replaced.
fn updated(document: &str) -> String {
    let mut text = document.to_owned();
    for (name, section) in [("log-root", root()), ("log-batch", batch())] {
        let (start, end) = (
            format!("<!-- printed: {name} -->\n"),
            format!("<!-- end: {name} -->"),
        );
        let from = text.find(&start).unwrap_or_else(|| panic!("no `{start}`")) + start.len();
        let to = from
            + text[from..]
                .find(&end)
                .unwrap_or_else(|| panic!("no `{end}`"));
        text.replace_range(from..to, &format!("\n{section}\n"));
    }
    text
}

#[test]
fn the_document_has_the_logs_fields() {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/FORMAT.md");
    let expected = updated(&document);
    if std::env::var_os("UPDATE_FORMAT").is_some() {
        std::fs::write(DOCUMENT, expected).expect("docs/FORMAT.md can be written");
        return;
    }
    assert!(
        document == expected,
        "docs/FORMAT.md differs from the log's code; if the code is right and its version was \
         raised: UPDATE_FORMAT=1 cargo test -p perdure-wal --test it format_document"
    );
}
