//! What goes to the log, and how important it is.

use crate::output;
use crate::repeats::Limited;
use crate::visible::on_one_line;
use log::{Level, Log, Metadata, Record};
use std::fmt::Debug;
use std::io::{Error, stderr};
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_log::{AsLog, LogTracer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Where the FUSE library says that it could not send a reply.
const REPLIES: &str = "fuser::reply";

/// Sends log lines to stderr: warnings and errors, unless `RUST_LOG` says otherwise.
///
/// Leaves out repeated lines ([`repeats`](crate::repeats)) and lines that cannot be written.
pub(crate) fn start(has_time: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        // That a line cannot be written would be said on stderr, by a macro that panics if it cannot.
        .log_internal_errors(false)
        // Paths and names in a line are not this program's words.
        .fmt_fields(visible_fields())
        .with_ansi(output::stderr_has_colour());
    let format = tracing_subscriber::fmt::format();
    let subscriber: tracing::Dispatch = match has_time {
        true => lines.event_format(Limited::new(format)).finish().into(),
        false => {
            let format = format.without_time().with_target(false);
            lines.event_format(Limited::new(format)).finish().into()
        }
    };
    // Fails only if somebody logs already; there is nobody else.
    let _ = log::set_boxed_logger(Box::new(Libraries(LogTracer::new())));
    let _ = tracing::dispatcher::set_global_default(subscriber);
    log::set_max_level(LevelFilter::current().as_log());
}

/// Writes the fields of a line with their control characters written out.
fn visible_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let field = |to: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        let value = on_one_line(&format!("{value:?}"));
        match field.name() {
            "message" => write!(to, "{value}"),
            name => write!(to, "{name}={value}"),
        }
    };
    debug_fn(field).delimited(" ")
}

/// What libraries log by way of the crate `log`.
struct Libraries(LogTracer);

impl Log for Libraries {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        let level = level_of(record);
        let metadata = Metadata::builder()
            .level(level)
            .target(record.target())
            .build();
        if !self.enabled(&metadata) {
            return;
        }
        self.0.log(
            &Record::builder()
                .metadata(metadata)
                .args(*record.args())
                .module_path(record.module_path())
                .file(record.file())
                .line(record.line())
                .build(),
        );
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// The kernel does not know a request any more whose process was interrupted, and says so when the reply comes: that is no error of anybody's.
fn level_of(record: &Record<'_>) -> Level {
    let is_unknown = || {
        let unknown = Error::from_raw_os_error(libc::ENOENT).to_string();
        record.args().to_string().ends_with(&unknown)
    };
    match record.target() == REPLIES && is_unknown() {
        true => Level::Debug,
        false => record.level(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(target: &str, errno: i32) -> Level {
        let error = Error::from_raw_os_error(errno);
        level_of(
            &Record::builder()
                .level(Level::Error)
                .target(target)
                .args(format_args!("Failed to send FUSE reply: {error}"))
                .build(),
        )
    }

    #[test]
    fn only_a_reply_to_nobody_is_no_error() {
        assert_eq!(level(REPLIES, libc::ENOENT), Level::Debug);
        for errno in [libc::EINVAL, libc::EIO, libc::ENODEV, libc::ENOMEM] {
            assert_eq!(level(REPLIES, errno), Level::Error);
        }
        assert_eq!(level("fuser::channel", libc::ENOENT), Level::Error);
    }
}
