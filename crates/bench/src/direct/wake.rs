//! How long a processor that has fallen asleep takes to run a thread.

use crate::error::BenchError;
use crate::measure::{Pinned, median, processors};
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::path::Path;
use std::time::Instant;

/// There and back, for the median.
const TIMES: usize = 301;

/// What a request to a server costs beyond the work, as a clause for a row's note; empty where there is one processor only, or the caller is pinned to one.
///
/// A plain mount waits for that twice in each request, for the server and for its answer; a program with direct access only where it asks the server. So rows that compare the two differ from machine to machine.
pub(super) fn wake_note() -> Result<String, BenchError> {
    let [first, second, ..] = processors()[..] else {
        return Ok(String::new());
    };
    let microseconds = wake_microseconds([first, second])
        .map_err(BenchError::io("wake a thread through", Path::new("a pipe")))?;
    Ok(format!(
        "; a processor that sleeps is woken in {microseconds:.1} us"
    ))
}

/// Microseconds from a byte written to a pipe until who waits for it, on another processor, has it.
fn wake_microseconds([first, second]: [usize; 2]) -> io::Result<f64> {
    let (mut from_here, mut to_other) = pipe()?;
    let (mut from_other, mut to_here) = pipe()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _pin = Pinned::to(second);
            // Until the other end is closed.
            while pass_on(&mut from_here, &mut to_here).is_ok() {}
        });
        let _pin = Pinned::to(first);
        let trips = (0..TIMES).map(|_| {
            let begin = Instant::now();
            to_other.write_all(&[0])?;
            from_other.read_exact(&mut [0])?;
            Ok(begin.elapsed().as_nanos() as f64 / 1000.0 / 2.0)
        });
        let trips: io::Result<Vec<f64>> = trips.collect();
        drop(to_other);
        Ok(median(&trips?))
    })
}

fn pass_on(from: &mut PipeReader, to: &mut PipeWriter) -> io::Result<()> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    to.write_all(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wake_each_other_even_where_there_is_one_processor_only() {
        for other in [processors()[0], *processors().last().expect("one")] {
            let microseconds = wake_microseconds([processors()[0], other]).expect("pipes");
            assert!(
                microseconds > 0.1 && microseconds < 1e6,
                "{microseconds}: sleeping and waking takes more than a line, and less than a second"
            );
        }
    }
}
