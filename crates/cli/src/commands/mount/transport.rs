//! The system's switch for FUSE over io_uring.

use std::path::Path;

use crate::failure::Failure;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches io_uring on for all FUSE mounts that are made from now on, until the next boot, if that
/// is wanted.
pub(super) fn enable_if(is_wanted: bool) -> Result<(), Failure> {
    if !is_wanted {
        return Ok(());
    }
    let switch = Path::new(SWITCH);
    std::fs::write(switch, "Y").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::failed(
            "--enable-uring: this kernel has no FUSE over io_uring; Linux 6.14 and later have it",
        ),
        std::io::ErrorKind::PermissionDenied => Failure::failed(format_args!(
            "--enable-uring: only root may switch it on; have root do: echo Y > {SWITCH}"
        )),
        _ => Failure::io("switch it on", switch)(error),
    })
}
