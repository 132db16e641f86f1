//! The price of an attachment, and the payments of a file towards it.
//!
//! Whether to attach a file is the question whether to rent or to buy. An operation through the
//! kernel takes longer than a direct one: the difference is the rent. A file is attached once its
//! rent exceeds the price, so a file that is hardly used is never attached. Price and rent are
//! measured in this process, because both depend on the machine and on what else it does.

use crate::policy::Purpose;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The rule by which a file is attached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// The operation of this number attaches the file. For callers that time no calls, and tests.
    After(u64),
    /// The file is attached when that pays, by the times that the caller tells.
    Measured,
}

impl Rule {
    /// The rule for callers that tell no times.
    pub(crate) const FIRST: Rule = Rule::After(OPERATIONS_BEFORE);
}

impl Default for Rule {
    fn default() -> Rule {
        Rule::FIRST
    }
}

/// The operation that attaches a file, if no calls are timed.
pub(crate) const OPERATIONS_BEFORE: u64 = 16;
/// Operations that make a small lease worth it, if no calls are timed.
const OPERATIONS_OF_A_JOURNAL: u64 = 6;

/// The kinds of attachment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Goods {
    Reading,
    Lease,
    /// The small lease of a journal.
    SmallLease,
}

impl Goods {
    pub(crate) fn of(purpose: Purpose, is_small: bool) -> Goods {
        match (purpose, is_small) {
            (Purpose::Reading, _) => Goods::Reading,
            (Purpose::Writing, false) => Goods::Lease,
            (Purpose::Writing, true) => Goods::SmallLease,
        }
    }

    /// Returns the purpose of the attachment.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Goods::Reading => Purpose::Reading,
            Goods::Lease | Goods::SmallLease => Purpose::Writing,
        }
    }
}

/// The kinds of kernel call that a direct operation saves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Read,
    Write,
    Sync,
}

/// Prices in nanoseconds before the first purchase, by [`Goods`]. docs/DIRECT.md has the figures.
const FIRST_PRICES: [u64; 3] = [500_000, 750_000, 30_000];
/// No measurement moves a price out of these bounds: a clock may jump, a machine may stand still.
const PRICE_MIN: u64 = 10_000;
const PRICE_MAX: u64 = 20_000_000;
/// One sample counts as no more than so many times the price: it may have waited for a processor.
const SAMPLE_MAX: u64 = 4;
/// A price moves by this part of the difference to a sample.
const PRICE_INERTIA: u64 = 4;

/// One call pays at most this part of a price, so that one that waited does not buy a file.
const PAYMENT_PART: u64 = 16;
/// The time of a direct operation: nanoseconds, and bytes that take another nanosecond.
const DIRECT: u64 = 50;
const DIRECT_BYTES: u64 = 64;
/// An average payment moves by this part of the difference to a new one, which counts as no more
/// than so many times the average: it stands for operations that are not timed.
const PAYMENT_INERTIA: u64 = 16;
const PAYMENT_MAX: u64 = 8;

/// The number of prices that a file pays before it is attached. A purchase may turn out useless;
/// then the program has lost one price, a quarter of the time that the file had taken.
const CAUTION_FIRST: u64 = 4;
const CAUTION_MAX: u64 = 32;
/// A small lease is worth it for a file that pays more than so many prices, because the kernel
/// takes longer to open and close a leased file.
const JOURNAL_WORTH: u64 = 2;
/// A price that no file pays moves back by this part each time.
const PRICE_MEMORY: u64 = 32;
/// A purchase that was worth so many prices lowers the caution.
const WORTH_A_RISK: u64 = 8;

/// The prices and payments of this process's files on one mount. Threads that measure at once may
/// lose a sample.
#[derive(Debug)]
pub(crate) struct Price {
    rule: Rule,
    prices: [AtomicU64; 3],
    cautions: [AtomicU64; 3],
    payments: [AtomicU64; 3],
}

/// A purchase that is being made.
#[derive(Debug)]
pub(crate) struct Purchase {
    goods: Goods,
    begin: Instant,
}

impl Purchase {
    pub(crate) fn begin(goods: Goods) -> Purchase {
        Purchase {
            goods,
            begin: Instant::now(),
        }
    }
}

impl Price {
    pub(crate) fn new(rule: Rule) -> Price {
        Price {
            rule,
            prices: FIRST_PRICES.map(AtomicU64::new),
            cautions: [CAUTION_FIRST, CAUTION_FIRST, 1].map(AtomicU64::new),
            payments: Default::default(),
        }
    }

    /// Says whether times decide.
    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.rule == Rule::Measured
    }

    fn of(&self, goods: Goods) -> u64 {
        self.prices[goods as usize].load(Relaxed)
    }

    /// Says whether a file has paid enough for an ordinary attachment.
    #[inline]
    pub(crate) fn is_paid(&self, purpose: Purpose, operations: u64, paid: u64) -> bool {
        match self.rule {
            Rule::After(enough) => operations >= enough,
            Rule::Measured => {
                let goods = Goods::of(purpose, false);
                paid >= self.of(goods) * self.cautions[goods as usize].load(Relaxed)
            }
        }
    }

    /// Returns the payment of a kernel call: its time less that of a direct operation.
    pub(crate) fn payment(&self, call: Call, bytes: usize, took: Duration) -> u64 {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let rent = took.saturating_sub(DIRECT + bytes as u64 / DIRECT_BYTES);
        let goods = match call {
            Call::Read => Goods::Reading,
            Call::Write | Call::Sync => Goods::Lease,
        };
        let payment = rent.min(self.of(goods) / PAYMENT_PART);
        let average = &self.payments[call as usize];
        let usual = average.load(Relaxed).max(DIRECT);
        let sample = payment.min(usual * PAYMENT_MAX);
        approach(average, sample, PAYMENT_INERTIA);
        payment
    }

    /// Returns the average payment of such calls.
    pub(crate) fn usual_payment(&self, call: Call) -> u64 {
        self.payments[call as usize].load(Relaxed)
    }

    /// Notes that a file was attached, and the operation done that needed it.
    pub(crate) fn paid(&self, purchase: &Purchase) {
        self.note(purchase.goods, purchase.begin.elapsed());
    }

    fn note(&self, goods: Goods, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let price = self.of(goods);
        let sample = took.min(price * SAMPLE_MAX).clamp(PRICE_MIN, PRICE_MAX);
        approach(&self.prices[goods as usize], sample, PRICE_INERTIA);
    }

    /// Notes that an attachment has ended, whose operations would have paid `worth` in the kernel.
    /// Returns how many prices that is.
    pub(crate) fn ended(&self, goods: Goods, operations: u64, worth: u64) -> u64 {
        if let Rule::After(_) = self.rule {
            return operations / OPERATIONS_BEFORE;
        }
        let times = worth / self.of(goods);
        let caution = &self.cautions[goods as usize];
        let now = caution.load(Relaxed);
        if goods != Goods::SmallLease {
            caution.store(next_caution(now, times), Relaxed);
        }
        times
    }

    /// Says whether a file like this one should get a small lease at its first write.
    ///
    /// A file that is never synced is likely to be used again through the kernel. To revoke its
    /// lease then costs more than the lease had saved, and this process does not see that cost.
    pub(crate) fn is_journal(&self, operations: u64, is_synced: bool, worth: u64) -> bool {
        if let Rule::After(_) = self.rule {
            return operations >= OPERATIONS_OF_A_JOURNAL;
        }
        let is_worth_it = is_synced && worth > self.of(Goods::SmallLease) * JOURNAL_WORTH;
        if !is_worth_it {
            // A high price is forgotten, so that it is measured again.
            let (price, first) = (Goods::SmallLease as usize, FIRST_PRICES[2]);
            approach(&self.prices[price], first, PRICE_MEMORY);
        }
        is_worth_it
    }
}

fn next_caution(now: u64, times: u64) -> u64 {
    match times {
        0 => (now * 2).min(CAUTION_MAX),
        WORTH_A_RISK.. => (now / 2).max(1),
        _ => now,
    }
}

/// Moves an average towards a sample; the first sample is the average.
fn approach(average: &AtomicU64, sample: u64, inertia: u64) {
    let now = average.load(Relaxed);
    let next = match now {
        0 => sample,
        _ if sample >= now => now + (sample - now).div_ceil(inertia),
        _ => now - (now - sample).div_ceil(inertia),
    };
    average.store(next, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Purpose::{Reading, Writing};

    fn ns(nanoseconds: u64) -> Duration {
        Duration::from_nanos(nanoseconds)
    }

    /// Counts operations of `took` nanoseconds until a new process attaches its first file.
    fn operations_before(call: Call, took: u64) -> u64 {
        let price = Price::new(Rule::Measured);
        let purpose = match call {
            Call::Read => Reading,
            _ => Writing,
        };
        let mut paid = 0;
        (1..)
            .find(|_| {
                paid += price.payment(call, 512, ns(took));
                price.is_paid(purpose, 0, paid)
            })
            .expect("some time")
    }

    #[test]
    fn a_file_is_attached_when_its_calls_took_longer_than_its_price() {
        // 32 writes of 17 us are not worth it, thousands are.
        let first = FIRST_PRICES[Goods::Lease as usize] * CAUTION_FIRST;
        assert_eq!(
            operations_before(Call::Write, 17_000),
            first.div_ceil(17_000 - DIRECT - 512 / DIRECT_BYTES)
        );
        assert_eq!(operations_before(Call::Write, 17_000), 178);
        // Reads that the kernel answers from its pages save little.
        assert!(operations_before(Call::Read, 700) > 3000);
        // However long a call takes, it does not buy a file.
        assert_eq!(
            operations_before(Call::Write, u64::MAX),
            PAYMENT_PART * CAUTION_FIRST
        );
    }

    #[test]
    fn a_call_that_is_no_slower_than_a_direct_one_pays_nothing() {
        let price = Price::new(Rule::Measured);
        assert_eq!(price.payment(Call::Read, 0, ns(DIRECT)), 0);
        assert_eq!(price.payment(Call::Read, 1 << 20, ns(16_000)), 0);
        assert_eq!(price.payment(Call::Read, 0, ns(DIRECT + 9)), 9);
        assert!(!price.is_paid(Reading, u64::MAX, 0));
    }

    #[test]
    fn the_price_follows_what_purchases_take_within_bounds() {
        let price = Price::new(Rule::Measured);
        for _ in 0..100 {
            price.note(Goods::Lease, ns(90_000));
        }
        assert_eq!(price.of(Goods::Lease), 90_000);
        assert_eq!(price.of(Goods::Reading), FIRST_PRICES[0], "another one");
        assert!(price.is_paid(Writing, 0, 90_000 * CAUTION_FIRST));
        assert!(!price.is_paid(Writing, 0, 90_000 * CAUTION_FIRST - 1));
        price.note(Goods::Lease, Duration::MAX);
        assert!(
            price.of(Goods::Lease) <= 90_000 * 2,
            "one sample is no rule"
        );
        for _ in 0..100 {
            price.note(Goods::Lease, Duration::MAX);
        }
        assert_eq!(price.of(Goods::Lease), PRICE_MAX);
        for _ in 0..100 {
            price.note(Goods::Lease, Duration::ZERO);
        }
        assert_eq!(price.of(Goods::Lease), PRICE_MIN);
    }

    #[test]
    fn purchases_that_were_not_worth_it_make_cautious_and_others_bold() {
        let price = Price::new(Rule::Measured);
        let once = price.of(Goods::Lease);
        let needed =
            |price: &Price| (1..=CAUTION_MAX).find(|times| price.is_paid(Writing, 0, once * times));
        for expected in [8, 16, 32, 32] {
            assert_eq!(price.ended(Goods::Lease, 100, once - 1), 0);
            assert_eq!(needed(&price), Some(expected));
        }
        assert_eq!(price.ended(Goods::Lease, 100, once * 2), 2);
        assert_eq!(needed(&price), Some(32), "as it was");
        for expected in [16, 8, 4, 2, 1, 1] {
            assert_eq!(price.ended(Goods::Lease, 100, once * WORTH_A_RISK), 8);
            assert_eq!(needed(&price), Some(expected));
        }
    }

    #[test]
    fn an_average_payment_follows_the_last_ones() {
        let price = Price::new(Rule::Measured);
        assert_eq!(price.usual_payment(Call::Sync), 0);
        let often = |took| {
            for _ in 0..300 {
                price.payment(Call::Sync, 0, ns(took + DIRECT));
            }
            price.usual_payment(Call::Sync)
        };
        assert_eq!(often(20_000), 20_000);
        assert_eq!(often(1000), 1000);
        price.payment(Call::Sync, 0, Duration::MAX);
        let after = price.usual_payment(Call::Sync);
        assert!(
            after <= 1000 + 7000 / PAYMENT_INERTIA + 1,
            "{after}: one is no rule"
        );
        assert_eq!(price.usual_payment(Call::Write), 0);
    }

    #[test]
    fn a_journal_is_a_file_that_would_have_paid_a_small_lease() {
        let price = Price::new(Rule::Measured);
        let enough = FIRST_PRICES[2] * JOURNAL_WORTH + 1;
        assert!(!price.is_journal(1000, true, enough - 1) && price.is_journal(1, true, enough));
        assert!(!price.is_journal(1000, false, u64::MAX), "never synced");
        for _ in 0..20 {
            price.note(Goods::SmallLease, Duration::MAX);
        }
        assert!(!price.is_journal(1, true, enough));
        let tried_again = (1..).find(|_| price.is_journal(1, true, enough * 2));
        assert!(tried_again.is_some_and(|times| (10..1000).contains(&times)));
        let counted = Price::new(Rule::After(16));
        assert!(counted.is_journal(6, false, 0) && !counted.is_journal(5, true, u64::MAX));
    }

    #[test]
    fn a_fixed_rule_counts_operations_and_nothing_else() {
        let price = Price::new(Rule::After(3));
        assert!(!price.is_measured());
        assert!(!price.is_paid(Writing, 2, u64::MAX) && price.is_paid(Writing, 3, 0));
        assert_eq!(price.ended(Goods::Lease, 160, 0), 10);
        assert_eq!(Rule::default(), Rule::After(OPERATIONS_BEFORE));
    }
}
