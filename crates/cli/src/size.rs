//! Sizes on the command line: `4G`, `512M`, `65536`.

/// Parses a number of bytes with an optional unit K, M, G or T (powers of 1024; `KiB` and `k` are fine too).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.len()
        - text
            .trim_start_matches(|character: char| character.is_ascii_digit())
            .len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("give a number with a unit K, M, G or T, for example 4G".to_owned()),
    };
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(_) if number.is_empty() => return Err("give a number, for example 4G".to_owned()),
        Err(_) => return Err("this is more than any memory holds".to_owned()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "this is more than any memory holds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn units_are_powers_of_1024() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("4g", 4 << 30),
            ("1TiB", 1 << 40),
            ("16MB", 16 << 20),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "G",
            "-1",
            "1.5G",
            "4X",
            "4 G",
            "99999999999999999999",
            "99999999999T",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
