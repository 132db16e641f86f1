//! Limits repeated log messages: clients and damaged pools can cause the same warning at will.
//!
//! The kind of a message is the place in the code that logs it, its subject an inode, a path, ….
//! Each kind, and each subject of a kind, has a budget of lines that refills slowly. The next line
//! of a kind says how many were left out. Lines below the level of a warning are not limited.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines of one kind about one subject: at once, and the time after which there may be one more.
const SUBJECT: Rate = Rate::new(5, Duration::from_secs(60));
/// The same for one kind about all subjects.
const KIND: Rate = Rate::new(50, Duration::from_secs(10));
/// Subjects that are remembered; of further ones only the kind is counted.
const SUBJECTS_MAX: usize = 4096;
/// Fields that say what a message is about.
const SUBJECT_FIELDS: [&str; 7] = [
    "inode",
    "segment",
    "subject",
    "operation",
    "path",
    "process",
    "user",
];

/// How many lines a budget holds, and how fast it refills.
#[derive(Clone, Copy, Debug)]
struct Rate {
    at_once: u32,
    every: Duration,
}

impl Rate {
    const fn new(at_once: u32, every: Duration) -> Rate {
        Rate { at_once, every }
    }
}

/// Lines that may be written.
#[derive(Clone, Copy, Debug)]
struct Budget {
    rate: Rate,
    lines: u32,
    refilled: Instant,
}

impl Budget {
    fn new(rate: Rate, now: Instant) -> Budget {
        Budget {
            rate,
            lines: rate.at_once,
            refilled: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let more = (passed.as_millis() / self.rate.every.as_millis()).min(u128::from(u32::MAX));
        self.lines = self.lines.saturating_add(more as u32);
        self.refilled += self.rate.every * more as u32;
        if self.lines >= self.rate.at_once {
            self.lines = self.rate.at_once;
            self.refilled = now;
        }
    }
}

/// A kind of message: the module and line that log it.
type Kind = (String, Option<u32>);

/// The budgets of one process.
#[derive(Debug, Default)]
struct Budgets {
    kinds: HashMap<Kind, (Budget, u64)>,
    subjects: HashMap<(Kind, u64), Budget>,
}

impl Budgets {
    /// Whether a message may be written now, and how many of its kind were left out before it.
    fn admit(&mut self, kind: Kind, subject: u64, now: Instant) -> Option<u64> {
        let key = (kind, subject);
        if !self.subjects.contains_key(&key) && self.subjects.len() >= SUBJECTS_MAX {
            self.subjects.retain(|_, budget| {
                budget.refill(now);
                budget.lines < budget.rate.at_once
            });
        }
        let (of_kind, left_out) = self
            .kinds
            .entry(key.0.clone())
            .or_insert_with(|| (Budget::new(KIND, now), 0));
        of_kind.refill(now);
        let mut spare = Budget::new(SUBJECT, now);
        let of_subject = match self.subjects.len() < SUBJECTS_MAX {
            true => self
                .subjects
                .entry(key)
                .or_insert_with(|| Budget::new(SUBJECT, now)),
            false => self.subjects.get_mut(&key).unwrap_or(&mut spare),
        };
        of_subject.refill(now);
        if of_kind.lines == 0 || of_subject.lines == 0 {
            *left_out += 1;
            return None;
        }
        of_kind.lines -= 1;
        of_subject.lines -= 1;
        Some(std::mem::take(left_out))
    }
}

/// Writes events as `F` does, but for repeated ones.
pub(crate) struct Limited<F> {
    format: F,
    budgets: Mutex<Budgets>,
}

impl<F> Limited<F> {
    pub(crate) fn new(format: F) -> Limited<F> {
        Limited {
            format,
            budgets: Mutex::default(),
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        let left_out = match *metadata.level() <= Level::WARN {
            true => {
                let kind = (metadata.target().to_owned(), metadata.line());
                let mut subject = Subject::default();
                event.record(&mut subject);
                let mut budgets = self.budgets.lock().unwrap_or_else(|lock| lock.into_inner());
                budgets.admit(kind, subject.0.finish(), Instant::now())
            }
            false => Some(0),
        };
        let Some(left_out) = left_out else {
            return Ok(());
        };
        self.format.format_event(context, writer.by_ref(), event)?;
        match left_out {
            0 => Ok(()),
            count => writeln!(
                writer,
                "  ({count} messages of this kind before it were left out)"
            ),
        }
    }
}

/// A hash of the fields that say what a message is about.
#[derive(Default)]
struct Subject(DefaultHasher);

impl Visit for Subject {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if SUBJECT_FIELDS.contains(&field.name()) {
            format!("{value:?}").hash(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::Arc;

    fn kind(line: u32) -> Kind {
        ("here".to_owned(), Some(line))
    }

    fn admitted(budgets: &mut Budgets, line: u32, subject: u64, count: u32, now: Instant) -> u32 {
        let mut one = |_| budgets.admit(kind(line), subject, now).is_some();
        (0..count).filter(|&number| one(number)).count() as u32
    }

    #[test]
    fn a_subject_and_a_kind_have_budgets_that_refill() {
        let (mut budgets, begin) = (Budgets::default(), Instant::now());
        let (of_subject, of_kind) = (SUBJECT.at_once, KIND.at_once);
        assert_eq!(admitted(&mut budgets, 1, 7, 1000, begin), of_subject);
        assert_eq!(admitted(&mut budgets, 1, 8, 1000, begin), of_subject);
        let others: u32 = (100..10_000)
            .map(|subject| admitted(&mut budgets, 1, subject, 3, begin))
            .sum();
        assert_eq!(others, of_kind - 2 * of_subject, "all subjects together");
        assert!(budgets.subjects.len() <= SUBJECTS_MAX);
        assert_eq!(admitted(&mut budgets, 2, 7, 1000, begin), of_subject);
        let later = begin + SUBJECT.every;
        let left_out = budgets.admit(kind(1), 7, later).expect("one more");
        // The first line about the next subject said what the first two subjects had lost.
        assert_eq!(left_out, 3 * 9_900 - 40);
        assert_eq!(budgets.admit(kind(1), 7, later), None);
        let much_later = later + 1000 * SUBJECT.every;
        assert_eq!(admitted(&mut budgets, 1, 7, 1000, much_later), of_subject);
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn repeated_warnings_are_left_out_and_counted_and_nothing_else_is() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .event_format(Limited::new(tracing_subscriber::fmt::format()))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for inode in [1_u64, 2] {
                for _ in 0..100 {
                    tracing::warn!(inode, "nonsense");
                }
            }
            for _ in 0..100 {
                tracing::debug!(inode = 1, "asked for");
            }
        });
        let written = String::from_utf8(lines.0.lock().expect("no panic").clone());
        let written = written.expect("text");
        let count = |word: &str| written.lines().filter(|line| line.contains(word)).count();
        assert_eq!(count("nonsense"), 10, "{written}");
        assert_eq!(
            count("(95 messages of this kind before it were left out)"),
            1
        );
        assert_eq!(count("asked for"), 100);
    }
}
