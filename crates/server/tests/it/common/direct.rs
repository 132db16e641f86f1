//! Files that this process uses directly, and what the server says of it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use direct::Client;
use perdure_server::control::{ClientStatus, DirectStatus, Question, Status, ask};

use super::Mounted;

pub(crate) const BLOCK: usize = 4096;
/// When something must have happened, on a machine that has other work.
pub(crate) const LATEST: Duration = Duration::from_secs(20);

/// A file that is read and written directly, or by the kernel if that cannot be.
pub(crate) struct Own {
    pub(crate) file: File,
    pub(crate) direct: Arc<direct::File>,
}

impl Own {
    pub(crate) fn create(mounted: &Mounted, name: &str, client: &Client) -> Own {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(mounted.path(name)).expect("open");
        let direct = client.look(file.as_fd()).expect("a file of the mount");
        Own { file, direct }
    }

    pub(crate) fn inode(&self) -> u64 {
        self.file.metadata().expect("metadata").ino()
    }

    /// Writes so many blocks: how many of them directly.
    pub(crate) fn write(&self, blocks: u64) -> u64 {
        let is_direct = |block: &u64| {
            let (data, offset) = ([*block as u8; BLOCK], block * BLOCK as u64);
            let slices = [IoSlice::new(&data)];
            let written = self.direct.write_at(self.file.as_fd(), &slices, offset);
            if written.is_none() {
                self.file.write_all_at(&data, offset).expect("write");
            }
            written.is_some()
        };
        (0..blocks).filter(is_direct).count() as u64
    }

    /// Reads the first block so often: how often directly.
    pub(crate) fn read(&self, times: u64) -> u64 {
        let is_direct = |_: &u64| {
            let mut data = [0; BLOCK];
            let slices = &mut [IoSliceMut::new(&mut data)];
            let read = self.direct.read_at(self.file.as_fd(), slices, 0);
            if read.is_none() {
                self.file.read_exact_at(&mut data, 0).expect("read");
            }
            read.is_some()
        };
        (0..times).filter(is_direct).count() as u64
    }
}

/// What the server says of itself.
pub(crate) fn status(mounted: &Mounted) -> Status {
    let answer = ask(&mounted.place.pool(), Question::Stat).expect("stat");
    serde_json::from_str(&answer).expect("JSON")
}

/// Of direct access.
pub(crate) fn direct_status(mounted: &Mounted) -> DirectStatus {
    status(mounted).direct.expect("direct access")
}

/// Of the processes that use it.
pub(crate) fn clients(mounted: &Mounted) -> Vec<ClientStatus> {
    let answer = ask(&mounted.place.pool(), Question::Clients).expect("clients");
    serde_json::from_str(&answer).expect("JSON")
}

/// Waits until there is no lease any more: the server may hear of it later than we go on.
pub(crate) fn await_no_lease(mounted: &Mounted) {
    let begin = Instant::now();
    while direct_status(mounted).leases > 0 {
        assert!(begin.elapsed() < LATEST, "a lease does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}
