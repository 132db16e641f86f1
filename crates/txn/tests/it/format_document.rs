//! The table of the image's stamp in `docs/FORMAT.md` is printed from the code.

use perdure_txn::ImageStamp;
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

fn image_stamp() -> String {
    fields!(ImageStamp {
        magic: "the bytes `PerdImg` and a zero",
        check: "CRC32C of the stamp's bytes from 12 on",
        version: "format of the stamp: 1",
        identity: "of the pool",
        token: "the use of the pool that wrote it: `user` of the log's root, with bit 0 clear",
        former: "the use before, if the image has nothing of this one; else `token`",
        complete: "the image has all batches before this position of the log",
        newest: "the image has no record with a larger number",
    })
}

/// The document with its printed sections replaced.
fn updated(document: &str) -> String {
    const START: &str = "<!-- printed: image-stamp -->\n";
    const END: &str = "<!-- end: image-stamp -->";
    let mut text = document.to_owned();
    let from = text.find(START).expect("the section begins") + START.len();
    let to = from + text[from..].find(END).expect("the section ends");
    text.replace_range(from..to, &format!("\n{}\n", image_stamp()));
    text
}

#[test]
fn the_document_has_the_stamps_fields() {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/FORMAT.md");
    let expected = updated(&document);
    if std::env::var_os("UPDATE_FORMAT").is_some() {
        std::fs::write(DOCUMENT, expected).expect("docs/FORMAT.md can be written");
        return;
    }
    assert!(
        document == expected,
        "docs/FORMAT.md differs from the stamp's code; if the code is right and its version was \
         raised: UPDATE_FORMAT=1 cargo test -p perdure-txn --test it format_document"
    );
}
