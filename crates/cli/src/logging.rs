//! What goes to the log, and how important it is.

use crate::output;
use crate::repeats::Limited;
use crate::visible::on_one_line;
use std::fmt::Debug;
use std::io::stderr;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_log::{AsLog, LogTracer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

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
    let _ = log::set_boxed_logger(Box::new(LogTracer::new()));
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
