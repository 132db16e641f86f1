//! Tables and examples as `docs/FORMAT.md` has them.

use std::fmt::Write;

/// Bytes of the field that `get` returns.
pub(super) fn field_bytes<T, F>(_get: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A table of all fields of a struct; fails if one is left out or padding stands between two.
macro_rules! fields {
    ($type:ty { $($field:ident: $meaning:expr,)* }) => {{
        let rows = [$((std::mem::offset_of!($type, $field), $crate::format_document::tables::field_bytes(|value: &$type| &value.$field), stringify!($field), $meaning.to_string()),)*];
        let mut end = 0;
        for (offset, bytes, name, _) in &rows {
            assert_eq!(*offset, end, "{}.{name} does not follow the field before", stringify!($type));
            end = offset + bytes;
        }
        assert_eq!(end, size_of::<$type>(), "a field of {} is missing", stringify!($type));
        let rows = rows.iter().map(|(offset, bytes, name, meaning)| (*offset as u64, *bytes as u64, format!("`{name}`"), meaning.clone()));
        $crate::format_document::tables::layout(&rows.collect::<Vec<_>>())
    }};
}

pub(super) fn layout(rows: &[(u64, u64, String, String)]) -> String {
    let mut table =
        String::from("| offset | bytes | field | meaning |\n| ---: | ---: | --- | --- |\n");
    for (offset, bytes, name, meaning) in rows {
        writeln!(table, "| {offset} | {bytes} | {name} | {meaning} |").expect("a string grows");
    }
    table
}

pub(super) fn pairs(head: (&str, &str), rows: &[(String, String)]) -> String {
    let mut table = format!("| {} | {} |\n| --- | --- |\n", head.0, head.1);
    for (left, right) in rows {
        writeln!(table, "| {left} | {right} |").expect("a string grows");
    }
    table
}

pub(super) fn code(lines: &[String]) -> String {
    format!("```text\n{}\n```\n", lines.join("\n"))
}

/// Bytes in rows of eight, as they lie on the medium.
pub(super) fn dump(bytes: &[u8]) -> Vec<String> {
    let row = |(index, row): (usize, &[u8])| {
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = row
            .iter()
            .map(|&byte| {
                if byte.is_ascii_graphic() {
                    byte as char
                } else {
                    '.'
                }
            })
            .collect();
        format!("{:4}  {}  {text}", index * 8, hex.join(" "))
    };
    bytes.chunks(8).enumerate().map(row).collect()
}
