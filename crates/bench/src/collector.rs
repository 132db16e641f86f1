//! An experiment has plans of its rows; a collector measures them and keeps the results.

use crate::error::BenchError;
use crate::evaluation::{Bar, Evaluation, Figure};
use crate::measure::{Rounds, Work, median};
use crate::report::{Better, Latencies, Report, Row, Setting};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A row, before it is measured.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Unit of both sides; that of the ratio is none.
    pub(crate) unit: &'static str,
    /// Our side is compared with this.
    pub(crate) against: &'static str,
    pub(crate) bar: f64,
    pub(crate) better: Better,
    /// The ratio that the paper gives.
    pub(crate) paper: Option<f64>,
    /// Limit of the fences of one operation.
    pub(crate) fences_bar: Option<f64>,
}

impl Plan {
    /// The ratio is to be this or less.
    pub(crate) const fn at_most(
        name: &'static str,
        unit: &'static str,
        against: &'static str,
        bar: f64,
    ) -> Plan {
        Plan {
            name,
            unit,
            against,
            bar,
            better: Better::Lower,
            paper: None,
            fences_bar: None,
        }
    }

    /// The ratio is to be this or more.
    pub(crate) const fn at_least(
        name: &'static str,
        unit: &'static str,
        against: &'static str,
        bar: f64,
        paper: Option<f64>,
    ) -> Plan {
        Plan {
            better: Better::Higher,
            paper,
            ..Plan::at_most(name, unit, against, bar)
        }
    }
}

/// The result of measuring a row.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) value: f64,
    pub(crate) against_value: f64,
    pub(crate) ratio: f64,
    pub(crate) best_value: Option<f64>,
    pub(crate) ratio_range: Option<[f64; 2]>,
    pub(crate) work: Option<Work>,
    pub(crate) latencies: Option<Latencies>,
    pub(crate) against_latencies: Option<Latencies>,
    pub(crate) note: Option<String>,
}

impl Found {
    /// Ours over theirs.
    pub(crate) fn of(rounds: &Rounds) -> Found {
        let [least, ratio, greatest] = rounds.ratios();
        Found {
            value: rounds.ours(),
            against_value: rounds.theirs(),
            ratio,
            ratio_range: Some([least, greatest]),
            ..Found::default()
        }
    }

    /// For bars about speed where the rounds are times: theirs over ours.
    pub(crate) fn speed_of(rounds: &Rounds) -> Found {
        let [least, ratio, greatest] = rounds.ratios();
        Found {
            ratio: 1.0 / ratio,
            ratio_range: Some([1.0 / greatest, 1.0 / least]),
            ..Found::of(rounds)
        }
    }

    /// Ours over theirs, and the best round of ours.
    pub(crate) fn with_best(rounds: &Rounds, better: Better) -> Found {
        Found {
            best_value: Some(rounds.best(better == Better::Higher)),
            ..Found::of(rounds)
        }
    }

    /// A cost of several rounds, beside what it may be.
    pub(crate) fn beside_limit(costs: &[f64], limit: f64) -> Found {
        let cost = median(costs);
        let spread = |pick: fn(f64, f64) -> f64| costs.iter().map(|cost| cost / limit).reduce(pick);
        Found {
            value: cost,
            against_value: limit,
            ratio: cost / limit,
            ratio_range: spread(f64::min).zip(spread(f64::max)).map(<[f64; 2]>::from),
            ..Found::default()
        }
    }

    pub(crate) fn noted(mut self, note: String) -> Found {
        self.note = Some(note);
        self
    }
}

/// Turns a panic into an error.
pub(crate) fn guarded<T>(measure: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
    catch_unwind(AssertUnwindSafe(measure)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| {
            payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
        });
        Err(BenchError::Panic(
            text.unwrap_or_else(|| "without a message".to_owned()),
        ))
    })
}

/// Refuses names that are none of the known ones.
pub(crate) fn check_rows(only: &[String], known: &[&str]) -> Result<(), BenchError> {
    match only.iter().find(|row| !known.contains(&row.as_str())) {
        None => Ok(()),
        Some(row) => Err(BenchError::UnknownRow {
            row: row.clone(),
            known: known.join(", "),
        }),
    }
}

/// Collects what an experiment finds. Whatever fails takes only its own rows along.
pub(crate) struct Collector {
    plans: Vec<&'static Plan>,
    progress: Option<fn(&str)>,
    found: BTreeMap<&'static str, Result<Found, BenchError>>,
    /// Depends on the data that was moved; only `ops` has it.
    pub(crate) hash: u64,
    pub(crate) figures: Vec<Figure>,
    pub(crate) details: Map<String, Value>,
}

impl Collector {
    /// For those of the plans that are named in `only`; for all if it is empty.
    pub(crate) fn new(
        plans: impl IntoIterator<Item = &'static Plan>,
        only: &[String],
        progress: Option<fn(&str)>,
    ) -> Collector {
        let wanted = |plan: &&Plan| only.is_empty() || only.iter().any(|name| name == plan.name);
        Collector {
            plans: plans.into_iter().filter(wanted).collect(),
            progress,
            found: BTreeMap::new(),
            hash: 0,
            figures: Vec::new(),
            details: Map::new(),
        }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.plans.iter().any(|plan| plan.name == name)
    }

    pub(crate) fn tell(&self, what: &str) {
        if let Some(progress) = self.progress {
            progress(what);
        }
    }

    /// Measures a row if it is wanted; an error or a panic is its result.
    pub(crate) fn row(
        &mut self,
        name: &'static str,
        measure: impl FnOnce() -> Result<Found, BenchError>,
    ) {
        self.hashed_row(name, |_| measure());
    }

    /// The same for a row that adds to the hash.
    pub(crate) fn hashed_row(
        &mut self,
        name: &'static str,
        measure: impl FnOnce(&mut u64) -> Result<Found, BenchError>,
    ) {
        if self.wants(name) {
            self.tell(name);
            let found = guarded(|| measure(&mut self.hash));
            self.found.insert(name, found);
        }
    }

    /// Does what several rows need, if one is wanted. An error is the result of all rows that were
    /// not reached.
    pub(crate) fn group(
        &mut self,
        names: &[&'static str],
        measure: impl FnOnce(&mut Collector) -> Result<(), BenchError>,
    ) {
        let wanted = names.iter().copied().filter(|name| self.wants(name));
        let wanted: Vec<&'static str> = wanted.collect();
        if wanted.is_empty() {
            return;
        }
        if let Err(error) = guarded(|| measure(self)) {
            for name in wanted {
                self.found
                    .entry(name)
                    .or_insert_with(|| Err(error.for_another()));
            }
        }
    }

    pub(crate) fn evaluation(mut self, setting: Setting) -> Evaluation {
        Evaluation {
            rows: self.rows(Bar::of),
            setting,
            figures: self.figures,
            details: self.details,
        }
    }

    pub(crate) fn report(mut self, setting: Setting) -> Report {
        Report {
            rows: self.rows(Row::of),
            setting,
            hash: format!("{:016x}", self.hash),
        }
    }

    /// Makes a row of every plan, in their order.
    fn rows<T>(&mut self, row_of: fn(&Plan, Result<Found, BenchError>) -> T) -> Vec<T> {
        let rows = self.plans.iter().map(|plan| {
            let missing = || Err(BenchError::Setup("it was not reached".to_owned()));
            row_of(plan, self.found.remove(plan.name).unwrap_or_else(missing))
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::PLANS;

    #[test]
    fn what_several_rows_lack_is_an_absence_in_each() {
        let names = ["fio_randwrite", "fio_randread"];
        let only = names.map(str::to_owned);
        let mut collector = Collector::new(&PLANS, &only, None);
        collector.group(&names, |_| {
            Err(BenchError::NotInstalled {
                program: "fio",
                package: "fio",
            })
        });
        let evaluation = collector.evaluation(Setting::here("direct", ""));
        assert_eq!(evaluation.rows.len(), names.len());
        for row in &evaluation.rows {
            let said = row.not_measured.as_deref();
            assert_eq!(said, Some("fio is not installed (apt install fio)"));
            assert_eq!(row.compared.error, None);
        }
    }
}
