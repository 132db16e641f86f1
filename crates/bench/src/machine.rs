//! The machine that the figures were measured on.

use pmem::{FlushInstruction, StreamInstruction};
use serde::Serialize;

/// Facts without which a figure means nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Version of the kernel.
    pub kernel: String,
    /// Instruction that writes a line back.
    pub flush: String,
    /// Instruction set of the non-temporal stores.
    pub stream: String,
    /// Load average of the last minute when the experiment began: above 1 the machine had other work too.
    pub load_average: f64,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let information = read("/proc/cpuinfo");
        let model = information
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg");
        Machine {
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            flush: FlushInstruction::chosen().to_string(),
            stream: StreamInstruction::chosen().to_string(),
            load_average: load
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0.0),
        }
    }
}
