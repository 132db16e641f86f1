//! `perdure mount -o remount`: a mount in use turns read-only and back.

use super::options::Options;
use crate::failure::{Failure, Status};
use crate::mounts;
use server::{Remount, RemountError};
use std::path::Path;

/// Changes the mount. Returns a line that says what it is now.
pub(super) fn run(pool: &Path, mountpoint: &Path, options: &Options) -> Result<String, Failure> {
    // Its server cannot write, whatever the kernel lets through.
    let opened_read_only = || mounts::ask(pool).is_ok_and(|status| status.read_only);
    if !options.read_only && opened_read_only() {
        let place = mountpoint.display();
        let remedy = "unmount it and mount it again";
        return Err(Failure::new(
            Status::Busy,
            format_args!("{place}: was mounted read-only, so its server cannot write; {remedy}"),
        ));
    }
    let wanted = Remount {
        read_only: options.read_only,
        restrictions: options.restrictions,
        lifted: options.lifted,
    };
    server::remount(pool, mountpoint, wanted).map_err(|error| match error {
        RemountError::Busy { .. } => Failure::new(Status::Busy, error),
        error => Failure::failed(error),
    })?;
    let now = match options.read_only {
        true => "read-only",
        false => "read-write",
    };
    Ok(format!(
        "remounted {} at {}: {now}\n",
        pool.display(),
        mountpoint.display()
    ))
}
