//! Parts of a read that lie on the device: noted while the file is looked at, read without a lock.

use crate::inode::node::Node;
use crate::locks::view::Snapshot;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use device::{DeviceBlock, Pin, ReadRequest};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use txn::{PoolDevice, Store};

/// A block of a file that lies on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePlace {
    /// Its index in the file.
    pub(super) index: u64,
    pub(super) block: DeviceBlock,
    /// Where the wanted part of it begins.
    pub(super) in_block: usize,
}

struct Part<'b> {
    place: FilePlace,
    into: &'b mut [u8],
}

/// The noted parts. Nearly always there are none, which costs one word.
pub(super) struct Elsewhere<'b, 's>(Option<Box<Noted<'b, 's>>>);

struct Noted<'b, 's> {
    device: &'s PoolDevice,
    /// The pin is taken with the first note, while the reader holds the file's lock: blocks that
    /// are freed later keep their content (D4).
    _pin: Pin<'s>,
    parts: Vec<Part<'b>>,
}

impl<'b, 's> Elsewhere<'b, 's> {
    pub(super) const NOTHING: Elsewhere<'b, 's> = Elsewhere(None);

    /// Notes a part of a block, which goes to `into`.
    #[cold]
    #[inline(never)]
    pub(super) fn note<S: Store>(&mut self, store: &'s S, place: FilePlace, into: &'b mut [u8]) {
        if self.0.is_none() {
            // A pointer to a device that the pool does not have is damaged, and does not come here.
            self.0 = store.device().map(|device| {
                Box::new(Noted {
                    device,
                    _pin: device.pin(),
                    parts: Vec::new(),
                })
            });
        }
        if let Some(noted) = &mut self.0 {
            noted.parts.push(Part { place, into });
        }
    }

    /// Reads all noted parts in one batch. The caller held the file's lock while it noted them, and
    /// holds none now. Hot blocks are copied to DRAM if the file still is as in `snapshot` (D6).
    ///
    /// # Errors
    ///
    /// [`FsError::Device`], with a line in the log.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch<S: Store>(
        self,
        core: &Core<S>,
        node: &Node,
        snapshot: Option<&Snapshot>,
    ) -> Result<(), FsError> {
        let Some(noted) = self.0 else {
            return Ok(());
        };
        let Noted {
            device,
            _pin,
            mut parts,
        } = *noted;
        let places: Vec<FilePlace> = parts.iter().map(|part| part.place).collect();
        let mut partial = Partial::of(&parts);
        let mut requests = partial.requests(&mut parts);
        if let Err(fault) = device.read(&mut requests) {
            let place = places.iter().find(|place| place.block == fault.block);
            let index = place.map_or(0, |place| place.index);
            return Err(core.device_failed(node.number(), index, fault));
        }
        if let Some(tier) = &core.tier {
            places
                .iter()
                .for_each(|place| tier.read_cold(node, place.index));
        }
        if let Some(cache) = &core.copies.cache {
            let is_current = || {
                let is_same = |snapshot| node.view().is_current(snapshot);
                snapshot.is_some_and(is_same) || deliberate::is(Bug::StaleFill)
            };
            for (place, request) in places.iter().zip(&requests) {
                let (copies, tag) = (&node.0.copies, node.number().get());
                cache.fetched(copies, tag, place.index, request.into, is_current);
            }
        }
        drop(requests);
        partial.copy_out(&mut parts);
        Ok(())
    }
}

/// Whole blocks for the parts that are less: the first and the last one of a read at most.
struct Partial(Vec<[u8; BLOCK_BYTES]>);

impl Partial {
    fn of(parts: &[Part<'_>]) -> Partial {
        let partial = parts.iter().filter(|part| !part.is_whole());
        Partial(vec![[0; BLOCK_BYTES]; partial.count()])
    }

    /// A request for each part, in order.
    fn requests<'p>(&'p mut self, parts: &'p mut [Part<'_>]) -> Vec<ReadRequest<'p>> {
        let mut spare = self.0.iter_mut();
        let request = |part: &'p mut Part<'_>| {
            let block = part.place.block;
            let into = match part.into.as_mut_array() {
                Some(into) => Some(into),
                None => spare.next(),
            };
            into.map(|into| ReadRequest { block, into })
        };
        parts.iter_mut().filter_map(request).collect()
    }

    fn copy_out(self, parts: &mut [Part<'_>]) {
        let partial = parts.iter_mut().filter(|part| !part.is_whole());
        for (part, content) in partial.zip(self.0) {
            let from = part.place.in_block;
            part.into
                .copy_from_slice(&content[from..from + part.into.len()]);
        }
    }
}

impl Part<'_> {
    fn is_whole(&self) -> bool {
        self.into.len() == BLOCK_BYTES
    }
}
