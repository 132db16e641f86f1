//! Which of the many things that a power cut may leave are looked at.

use super::crash::{Choice, PendingKind, PendingLine};

/// Of how many of the newest lines each prefix, or each missing word, is tried.
const NEWEST_LINES: usize = 8;

/// An iterator over [`Choice`]s; made by [`super::CrashPoint::enumerate`].
#[derive(Debug)]
pub struct Choices<'p> {
    pending: &'p [PendingLine],
    plan: Plan,
    remaining: usize,
    random: SplitMix,
}

#[derive(Debug)]
enum Plan {
    /// All of them: the next one, or none when the odometer has come round.
    Exhaustive(Option<Vec<u32>>),
    /// Hand-picked ones, last first; then random ones.
    Picked(Vec<Pick>),
}

/// A choice described by what is special about it.
#[derive(Copy, Clone, Debug)]
enum Pick {
    None,
    All,
    /// Only this line survives.
    Alone(usize),
    /// Everything but this line survives.
    AllBut(usize),
    /// One slot of this line holds a number of its own, in the midst of nothing or of everything.
    Slot {
        line: usize,
        slot: usize,
        number: u32,
        others: bool,
    },
}

impl<'p> Choices<'p> {
    pub(super) fn new(pending: &'p [PendingLine], limit: usize, seed: u64) -> Choices<'p> {
        let slots = || {
            pending
                .iter()
                .flat_map(|line| std::iter::repeat_n(line.radix(), line.slots()))
        };
        let possibilities = slots().fold(1u64, |product, radix| {
            product.saturating_mul(u64::from(radix))
        });
        let plan = if possibilities <= limit as u64 {
            Plan::Exhaustive(Some(vec![0; slots().count()]))
        } else {
            let mut picks = picks(pending);
            // A quarter stays for chance, however many lines are pending.
            picks.truncate((limit - limit / 4).max(2));
            picks.reverse();
            Plan::Picked(picks)
        };
        Choices {
            pending,
            plan,
            remaining: limit,
            random: SplitMix(seed),
        }
    }

    fn render(&self, pick: Pick) -> Choice {
        let mut numbers = Vec::new();
        for (index, line) in self.pending.iter().enumerate() {
            let survives = match pick {
                Pick::None => false,
                Pick::All => true,
                Pick::Alone(only) => only == index,
                Pick::AllBut(missing) => missing != index,
                Pick::Slot { others, .. } => others,
            };
            let first = numbers.len();
            numbers.resize(
                first + line.slots(),
                if survives { line.radix() - 1 } else { 0 },
            );
            if let Pick::Slot {
                line, slot, number, ..
            } = pick
                && line == index
            {
                numbers[first + slot] = number;
            }
        }
        Choice(numbers)
    }

    /// Each line is lost, whole, or something in between, at odds that differ from choice to choice.
    fn random(&mut self) -> Choice {
        let odds = 1 + self.random.below(7);
        let mut numbers = Vec::new();
        for line in self.pending {
            let (fate, roll) = (self.random.below(8), self.random.below(8));
            for _ in 0..line.slots() {
                numbers.push(match fate {
                    0 | 1 => self.random.below(u64::from(line.radix())) as u32,
                    _ if roll < odds => line.radix() - 1,
                    _ => 0,
                });
            }
        }
        Choice(numbers)
    }
}

impl Iterator for Choices<'_> {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        self.remaining = self.remaining.checked_sub(1)?;
        let pick = match &mut self.plan {
            Plan::Exhaustive(odometer) => {
                let numbers = odometer.take()?;
                *odometer = successor(self.pending, &numbers);
                return Some(Choice(numbers));
            }
            Plan::Picked(picks) => picks.pop(),
        };
        Some(match pick {
            Some(pick) => self.render(pick),
            None => self.random(),
        })
    }
}

/// The odometer's next position, or `None` after the last.
fn successor(pending: &[PendingLine], numbers: &[u32]) -> Option<Vec<u32>> {
    let mut next = numbers.to_vec();
    let radices = pending
        .iter()
        .flat_map(|line| std::iter::repeat_n(line.radix(), line.slots()));
    for (number, radix) in next.iter_mut().zip(radices) {
        *number += 1;
        if *number < radix {
            return Some(next);
        }
        *number = 0;
    }
    None
}

/// The choices that find most mistakes, in the order in which they are tried.
fn picks(pending: &[PendingLine]) -> Vec<Pick> {
    let mut picks = vec![Pick::None, Pick::All];
    for (line, content) in pending.iter().enumerate().take(NEWEST_LINES) {
        for others in [false, true] {
            match &content.kind {
                PendingKind::Cached { writes } => {
                    let prefixes = 1..writes.len() as u32;
                    picks.extend(prefixes.map(|number| Pick::Slot {
                        line,
                        slot: 0,
                        number,
                        others,
                    }));
                }
                PendingKind::Streaming { words } => {
                    // One word that tears the line: there alone, or missing alone.
                    let number = u32::from(!others);
                    picks.extend((0..words.len()).map(|slot| Pick::Slot {
                        line,
                        slot,
                        number,
                        others,
                    }));
                }
            }
        }
        picks.extend([Pick::Alone(line), Pick::AllBut(line)]);
    }
    for line in NEWEST_LINES..pending.len() {
        picks.extend([Pick::Alone(line), Pick::AllBut(line)]);
    }
    picks
}

/// SplitMix64: a small seeded generator, so that a failing choice can be had again.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
