//! Another power cut: in a recovery, in the first sync and the first checkpoint after it, or in the
//! unmount.

use super::judge::{CHECK_EVERY, WRITES_NOTHING, recover};
use super::medium::{Medium, Point};
use super::pool::{mount, save_image};
use crate::clock;
use crate::recovery::caught;
use crate::snapshot::{Fingerprint, Summary};
use crate::state_id::{Cut, StateId};
use crate::tally::Tally;
use crate::watcher::Failure;
use parking_lot::Mutex;
use pmem::Region;
use pmem::emulator::Moment;
use std::sync::Arc;
use txn::checksum::mix64;

/// The search for states of one recovery.
pub(super) struct Second {
    pub(super) tally: Arc<Tally>,
    /// The state that is recovered.
    pub(super) id: StateId,
    pub(super) limit: usize,
    pub(super) only: Option<Cut>,
    /// Trees that a power cut may leave until the next sync.
    pub(super) allowed: Vec<Fingerprint>,
}

struct Watching {
    second: Second,
    events: u64,
    failure: Option<Failure>,
}

impl Second {
    /// Recovers, syncs, saves the image and unmounts; the tree must be `found` all the time.
    pub(super) fn explore(
        self,
        medium: &Arc<Medium>,
        left: Option<Arc<Region>>,
        found: Fingerprint,
    ) -> Option<Failure> {
        let id = self.id;
        let watching = Arc::new(Mutex::new(Watching {
            second: self,
            events: 0,
            failure: None,
        }));
        let watcher = Arc::clone(&watching);
        medium.on_event(Some(Arc::new(move |medium: &Medium| {
            watcher.lock().look(&medium.point());
        })));
        let steps = || {
            let files = mount(&medium.disks(), left, WRITES_NOTHING)?;
            let tree = Summary::of(&files).map_err(|error| format!("reading: {error}"))?;
            if tree.fingerprint != found {
                return Err("it leads to another tree than before".to_owned());
            }
            files.sync().map_err(|error| error.to_string())?;
            watching.lock().second.allowed = vec![found];
            watching.lock().look(&medium.point());
            save_image(&files)?;
            files.unmount();
            match medium.point().is_durable() {
                true => Ok(()),
                false => Err("an unmount leaves writes that are not durable".to_owned()),
            }
        };
        let done = caught(|| clock::aside(steps));
        medium.on_event(None);
        let failure = watching.lock().failure.take();
        let reason = done.err();
        failure.or(reason.map(|reason| Failure {
            id,
            reason: format!("recovering again: {reason}"),
        }))
    }
}

impl Watching {
    fn look(&mut self, point: &Point) {
        self.events += 1;
        let Second {
            tally,
            id,
            limit,
            only,
            allowed,
        } = &self.second;
        tally.count_point();
        let limit = only.map_or(*limit, |only| only.limit);
        let demand = allowed.iter().fold(1, |all, tree| mix64(all ^ tree.0));
        for (index, choice) in point.choices(limit, self.events).into_iter().enumerate() {
            let cut = Cut {
                fence: self.events,
                moment: Moment::Between,
                choice: index,
                limit,
            };
            if only.is_some_and(|only| only != cut) || self.failure.is_some() {
                continue;
            }
            let hash = point.hash(choice) ^ demand;
            if !tally.is_new_on_disks(hash, true) {
                continue;
            }
            let with_check = only.is_some() || hash.is_multiple_of(CHECK_EVERY);
            let reason = match caught(|| recover(&point.cut(choice), None, with_check)) {
                Ok(tree) if allowed.contains(&tree) => continue,
                Ok(_) => "a second power cut leads to another tree".to_owned(),
                Err(reason) => reason,
            };
            let id = StateId {
                second: Some(cut),
                ..*id
            };
            self.failure = Some(Failure { id, reason });
        }
    }
}
