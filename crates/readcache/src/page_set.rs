//! A set of pages that says which one comes next: a bit for each page, and a bit for each word of them.

const WORD: usize = u64::BITS as usize;

/// A set of numbers below a size that is known from the beginning.
#[derive(Default)]
pub(crate) struct PageSet {
    members: Vec<u64>,
    /// A bit for each word of `members` that is not 0.
    words: Vec<u64>,
    count: u32,
}

impl PageSet {
    /// An empty set of numbers below `size`.
    pub(crate) fn new(size: u32) -> PageSet {
        let words = (size as usize).div_ceil(WORD);
        PageSet {
            members: vec![0; words],
            words: vec![0; words.div_ceil(WORD)],
            count: 0,
        }
    }

    /// All numbers below `size`.
    pub(crate) fn full(size: u32) -> PageSet {
        let mut set = PageSet::new(size);
        set_first(&mut set.members, size as usize);
        let words = set.members.len();
        set_first(&mut set.words, words);
        set.count = size;
        set
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.members[page as usize / WORD] >> (page as usize % WORD) & 1 == 1
    }

    /// Adds a number that is not in the set.
    pub(crate) fn insert(&mut self, page: u32) {
        debug_assert!(!self.contains(page));
        let word = page as usize / WORD;
        self.members[word] |= 1 << (page as usize % WORD);
        self.words[word / WORD] |= 1 << (word % WORD);
        self.count += 1;
    }

    /// Takes a number out; whether it was in the set.
    pub(crate) fn remove(&mut self, page: u32) -> bool {
        let was_member = self.contains(page);
        let word = page as usize / WORD;
        self.members[word] &= !(1 << (page as usize % WORD));
        if self.members[word] == 0 {
            self.words[word / WORD] &= !(1 << (word % WORD));
        }
        self.count -= u32::from(was_member);
        was_member
    }

    /// The least number from `first` on; if there is none, the least of all.
    pub(crate) fn next(&self, first: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.next_below_the_end(first)
            .or_else(|| self.next_below_the_end(0))
    }

    fn next_below_the_end(&self, first: u32) -> Option<u32> {
        let word = first as usize / WORD;
        let here = self.members.get(word)? & !0 << (first as usize % WORD);
        if here != 0 {
            return Some((word * WORD) as u32 + here.trailing_zeros());
        }
        let word = next_bit(&self.words, word + 1)?;
        Some((word * WORD) as u32 + self.members[word].trailing_zeros())
    }
}

/// Sets so many bits, from the first one on.
fn set_first(words: &mut [u64], count: usize) {
    let whole = count / WORD;
    words[..whole].fill(!0);
    if !count.is_multiple_of(WORD) {
        words[whole] = (1 << (count % WORD)) - 1;
    }
}

/// The first bit that is set, from this one on.
fn next_bit(words: &[u64], first: usize) -> Option<usize> {
    let here = words.get(first / WORD)? & !0 << (first % WORD);
    if here != 0 {
        return Some(first / WORD * WORD + here.trailing_zeros() as usize);
    }
    let rest = words.iter().enumerate().skip(first / WORD + 1);
    let (index, word) = rest.into_iter().find(|(_, word)| **word != 0)?;
    Some(index * WORD + word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_with_an_order(
            size in 1_u32..20_000,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..300),
        ) {
            let mut set = PageSet::new(size);
            let mut model = BTreeSet::new();
            for (adds, index) in steps {
                let page = index.index(size as usize) as u32;
                if adds {
                    if model.insert(page) {
                        set.insert(page);
                    }
                } else {
                    prop_assert_eq!(set.remove(page), model.remove(&page));
                }
                prop_assert_eq!(set.count() as usize, model.len());
                prop_assert_eq!(set.contains(page), model.contains(&page));
                for first in [0, page, page + 1, size - 1, size] {
                    let next = model.range(first..).next().or(model.first());
                    prop_assert_eq!(set.next(first), next.copied());
                }
            }
        }
    }

    #[test]
    fn a_full_one_has_all() {
        for size in [1, 63, 64, 65, 4095, 4096, 4097] {
            let mut set = PageSet::full(size);
            let mut one_by_one = PageSet::new(size);
            (0..size).for_each(|page| one_by_one.insert(page));
            assert_eq!(
                (&set.members, &set.words),
                (&one_by_one.members, &one_by_one.words)
            );
            assert_eq!(set.count(), size);
            let mut next = 0;
            for page in 0..size {
                assert_eq!(set.next(next), Some(page));
                set.remove(page);
                next = page + 1;
            }
            assert_eq!(set.next(0), None);
        }
    }
}
