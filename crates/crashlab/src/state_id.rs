//! The name of a crash state: enough to make the same state again.
//!
//! `two-17-42/1/5b12@48`: the workload `two-17-42`, while its step 1 runs, at fence 5, before (`b`) it takes effect
//! (`a`: after, `n`: between fences), choice 12 of at most 48. A second cut is one in the recovery from the first.

use crate::workload::Workload;
use pmem::emulator::Moment;
use std::fmt;
use std::str::FromStr;

/// When the power is cut, and which of the pending writes survive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Number of the fence since the region was filled.
    pub fence: u64,
    /// Before or after it takes effect.
    pub moment: Moment,
    /// Position among the choices that are enumerated.
    pub choice: usize,
    /// Most choices that are enumerated.
    pub limit: usize,
}

/// A crash state, or, without a cut, the run of a workload itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StateId {
    /// The workload.
    pub workload: Workload,
    /// Which of its operations was running.
    pub step: usize,
    /// The power cut.
    pub cut: Option<Cut>,
    /// A second one, in the recovery.
    pub second: Option<Cut>,
}

const MOMENTS: [(Moment, char); 3] = [
    (Moment::Before, 'b'),
    (Moment::After, 'a'),
    (Moment::Between, 'n'),
];

impl fmt::Display for Cut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = MOMENTS
            .iter()
            .find(|(moment, _)| *moment == self.moment)
            .map_or('?', |(_, letter)| *letter);
        write!(
            formatter,
            "{}{letter}{}@{}",
            self.fence, self.choice, self.limit
        )
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let refused = || format!("{text} is no power cut; expected e.g. 5b12@48");
        let at = text
            .find(|letter: char| letter.is_ascii_alphabetic())
            .ok_or_else(refused)?;
        let (fence, rest) = text.split_at(at);
        let letter = rest.chars().next().ok_or_else(refused)?;
        let (choice, limit) = rest[1..].split_once('@').ok_or_else(refused)?;
        Ok(Cut {
            fence: fence.parse().map_err(|_| refused())?,
            moment: MOMENTS
                .iter()
                .find(|(_, known)| *known == letter)
                .map(|(moment, _)| *moment)
                .ok_or_else(refused)?,
            choice: choice.parse().map_err(|_| refused())?,
            limit: limit.parse().map_err(|_| refused())?,
        })
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.workload, self.step)?;
        [self.cut, self.second]
            .iter()
            .flatten()
            .try_for_each(|cut| write!(formatter, "/{cut}"))
    }
}

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<StateId, String> {
        let mut parts = text.split('/');
        let workload = parts.next().unwrap_or_default().parse()?;
        let step = parts
            .next()
            .map_or(Ok(0), str::parse)
            .map_err(|_| format!("{text}: the step is no number"))?;
        let cut = parts.next().map(str::parse).transpose()?;
        let second = parts.next().map(str::parse).transpose()?;
        Ok(StateId {
            workload,
            step,
            cut,
            second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back() {
        for text in [
            "one-3/0/5b12@48",
            "two-17-42/1/7a0@48/2b3@12",
            "long-99/13",
            "across-8-5/2/7a0@16",
            "large-2/2/4n1@24",
            "disktwo-5-17-4/3/12n7@40/3n1@12",
            "diskbeside-3-4/1/9a1@12",
            "disklong-77/12",
        ] {
            assert_eq!(
                text.parse::<StateId>().map(|id| id.to_string()),
                Ok(text.to_string())
            );
        }
        for text in [
            "",
            "one",
            "one-99999/0",
            "diskone-9-0/0",
            "disktwo-1-2/0",
            "one-1/x",
            "one-1/0/5c1@2",
            "one-1/0/b1@2",
            "one-1/0/5b1",
        ] {
            assert!(text.parse::<StateId>().is_err(), "{text}");
        }
    }
}
