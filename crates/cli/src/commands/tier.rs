//! `perdure tier`: the disk below a pool.

use crate::arguments::{Tier, TierCommand, TierFlush};
use crate::failure::{Failure, Status};
use crate::{mounts, output};
use server::control::TierStatus;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks at how far the server is.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(arguments: &Tier) -> Result<Status, Failure> {
    match &arguments.command {
        TierCommand::Flush(flush) => run_flush(flush),
    }
}

/// Has the server copy everything that is dirty now, and waits for that.
fn run_flush(arguments: &TierFlush) -> Result<Status, Failure> {
    let pool = &arguments.pool;
    let begun = Instant::now();
    mounts::begin_flush(pool).map_err(Failure::failed)?;
    let mut status = tier_of(pool)?;
    let (all, failures) = (status.dirty_bytes, status.failures);
    let bar = output::byte_bar(all);
    while status.flushing {
        bar.set_position(all.saturating_sub(status.dirty_bytes));
        if arguments
            .deadline
            .is_some_and(|most| begun.elapsed() >= most.0)
        {
            bar.finish_and_clear();
            return Err(Failure::failed(format_args!(
                "{}: {} are not copied yet ({}); the server goes on with it",
                pool.display(),
                output::Bytes(status.dirty_bytes),
                reason(&status, failures),
            )));
        }
        std::thread::sleep(LOOK_EVERY);
        status = tier_of(pool)?;
    }
    bar.finish_and_clear();
    output::print(format_args!(
        "{}: the home has everything that was written before this command\n",
        pool.display()
    ))?;
    Ok(Status::Success)
}

/// Why a flush takes so long.
fn reason(status: &TierStatus, failures_before: u64) -> String {
    match status.failures - failures_before.min(status.failures) {
        0 => status.state.clone(),
        failed => format!(
            "{}, {failed} attempts failed; see the server's log",
            status.state
        ),
    }
}

fn tier_of(pool: &Path) -> Result<TierStatus, Failure> {
    let status = mounts::ask(pool).map_err(Failure::failed)?;
    status.tier.ok_or_else(|| {
        Failure::failed(format_args!(
            "{}: the pool has no home; perdure mkfs --home makes one with a home",
            pool.display()
        ))
    })
}
