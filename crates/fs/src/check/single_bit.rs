//! Single flipped bits: the commonest fault of a medium, and the one that a checksum can undo.
//!
//! A CRC of 32 bits over a few hundred bytes tells every single flipped bit from every other, so of all candidates at
//! most one passes. Bytes that were overwritten pass by chance once in millions of times.

/// Flips each bit of `bytes` in turn; the first for which `is_valid` holds stays flipped.
pub(super) fn correct(
    bytes: &mut [u8],
    bits: usize,
    mut is_valid: impl FnMut(&[u8]) -> bool,
) -> bool {
    for bit in 0..bits.min(bytes.len() * 8) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if is_valid(bytes) {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    false
}

/// The one word that differs from `word` in one bit and that `read` takes; `None` if there is none or several.
pub(super) fn correct_word<T>(word: u64, read: impl Fn(u64) -> Option<T>) -> Option<(u64, T)> {
    let mut found = (0..64).filter_map(|bit| {
        let candidate = word ^ (1 << bit);
        read(candidate).map(|value| (candidate, value))
    });
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

/// CRC32C polynomial, bits reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

fn shift(state: u32) -> u32 {
    (state >> 1) ^ if state & 1 != 0 { POLYNOMIAL } else { 0 }
}

/// The bit among `length_bytes` bytes whose flipping changes their CRC32C by `difference`.
///
/// The CRC is linear: what one bit changes depends on its distance from the end alone, so no byte is read.
pub(super) fn locate(length_bytes: usize, difference: u32) -> Option<usize> {
    let mut states: [u32; 8] =
        std::array::from_fn(|bit| (0..8).fold(1 << bit, |state, _| shift(state)));
    for byte in (0..length_bytes).rev() {
        if let Some(bit) = states.iter().position(|&state| state == difference) {
            return Some(byte * 8 + bit);
        }
        for state in &mut states {
            *state = (0..8).fold(*state, |state, _| shift(state));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::checksum::crc32c;

    #[test]
    fn every_flipped_bit_of_a_blob_is_located() {
        let blob: Vec<u8> = (0..300u32).map(|i| (i * 7) as u8).collect();
        for bit in 0..blob.len() * 8 {
            let mut copy = blob.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(locate(copy.len(), crc32c(&copy) ^ crc32c(&blob)), Some(bit));
        }
        assert_eq!(locate(0, 1), None);
    }

    #[test]
    fn a_word_with_two_explanations_is_not_corrected() {
        assert_eq!(
            correct_word(0b11, |word| (word == 0b10).then_some(())),
            Some((0b10, ()))
        );
        assert_eq!(
            correct_word(0b11, |word| (word.count_ones() == 1).then_some(())),
            None
        );
    }
}
