//! The parameter of the kernel's module `fuse` that allows requests over io_uring.

use crate::error::BenchError;
use std::io::ErrorKind;
use std::path::Path;

const PATH: &str = "/sys/module/fuse/parameters/enable_uring";
const ON: &str = "Y";

/// The parameter is on; its former value comes back when this is dropped.
pub(super) struct Parameter {
    /// `None` if nothing was changed.
    former: Option<String>,
}

impl Parameter {
    /// Requires that io_uring is allowed. `enables`: allows it if it is not.
    pub(super) fn require(enables: bool) -> Result<Parameter, BenchError> {
        let value = match std::fs::read_to_string(PATH) {
            Ok(value) => value.trim().to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(BenchError::Unavailable(format!(
                    "this kernel has no FUSE over io_uring: there is no {PATH}; it takes Linux 6.14 or later with CONFIG_FUSE_IO_URING"
                )));
            }
            Err(error) => return Err(BenchError::io("read", Path::new(PATH))(error)),
        };
        if value == ON {
            return Ok(Parameter { former: None });
        }
        if !enables {
            return Err(BenchError::Unavailable(format!(
                "the kernel does not allow FUSE over io_uring: {PATH} is {value}; run as root: echo Y > {PATH}, or perdure bench mount --enable-uring"
            )));
        }
        std::fs::write(PATH, ON).map_err(BenchError::io("write Y to", Path::new(PATH)))?;
        Ok(Parameter {
            former: Some(value),
        })
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        if let Some(former) = &self.former
            && let Err(error) = std::fs::write(PATH, former)
        {
            eprintln!("perdure: cannot write {former} to {PATH} again: {error}");
        }
    }
}
