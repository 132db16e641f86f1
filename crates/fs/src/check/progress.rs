//! How to check, and how far a check is.

/// Called with the work done and the work there is, in a unit of its own; not more often than some thousand times.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to check.
#[derive(Clone, Copy, Default)]
pub struct CheckOptions<'a> {
    /// Threads that read inodes; 0 = one per core.
    pub threads: usize,
    /// Who wants to know how far it is.
    pub progress: Option<Progress<'a>>,
}

impl std::fmt::Debug for CheckOptions<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CheckOptions")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// The two long parts of a check; each is half of the work.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Inodes = 0,
    Names = 1,
}

/// Steps of which a phase reports one each.
const PROGRESS_STEPS: u64 = 1000;

pub(super) fn report_progress(options: &CheckOptions<'_>, phase: Phase, done: u64, total: u64) {
    let Some(progress) = options.progress else {
        return;
    };
    let step = |done: u64| done * PROGRESS_STEPS / total.max(1);
    if done == total || step(done) != step(done.saturating_sub(1)) {
        progress(
            phase as u64 * PROGRESS_STEPS + step(done),
            2 * PROGRESS_STEPS,
        );
    }
}
