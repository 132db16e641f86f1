//! A pool's files: open them whatever their state, replay, check, repair.

use super::kind::FaultKind;
use super::pass::check;
use super::progress::CheckOptions;
use super::repair::{self, repair};
use super::report::{Place, Report};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::OpenError;
use txn::salvage;

/// The result of [`check_pool`].
#[derive(Clone, Debug)]
pub struct PoolCheck {
    /// What was found, journals and missing files included.
    pub found: Report,
    /// What a repair left; `None` if none was asked for or nothing was found.
    pub left: Option<Report>,
    /// Files of the pool that are missing or too short. A repair makes them anew, filled with zeros.
    pub incomplete_files: Vec<PathBuf>,
}

/// Checks the pool at `path`, a directory or a device-DAX node, and repairs it if asked to.
///
/// Without `with_repair` nothing is written: the check works on a private copy, in which it replays the journals as a mount
/// would. With it, the pool is locked for this process. On a medium that is no persistent memory (a copy of a pool) the
/// repair is made durable by `fsync`.
///
/// # Errors
///
/// The pool is missing, no pool, of another version, in use, without a valid superblock, or cannot be opened.
pub fn check_pool(
    path: &Path,
    with_repair: bool,
    options: &CheckOptions<'_>,
) -> Result<PoolCheck, OpenError> {
    let pool = salvage::open(path, with_repair)?;
    let incomplete_files = pool.incomplete_files().to_vec();
    let missing = |report: &mut Report| {
        for file in &incomplete_files {
            report.add(
                Place::Pool,
                FaultKind::PoolTruncated,
                file.display().to_string(),
            );
        }
    };
    let mut found = Report::default();
    missing(&mut found);
    if !with_repair {
        found.merge(repair::prepare(pool.region()));
        let checked = check(pool.region(), options);
        found.complete = checked.complete;
        found.merge(checked);
        return Ok(PoolCheck {
            found,
            left: None,
            incomplete_files,
        });
    }
    let repaired = repair(&Arc::clone(pool.region()), options);
    pool.sync()?;
    found.complete = repaired.found.complete;
    let was_clean = incomplete_files.is_empty() && repaired.found.is_clean();
    found.merge(repaired.found);
    Ok(PoolCheck {
        found,
        left: (!was_clean).then_some(repaired.left),
        incomplete_files,
    })
}
