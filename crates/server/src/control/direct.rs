//! What a server says of the processes that read and write files directly.

use serde::{Deserialize, Serialize};

/// Direct access to a mount: what there is now, and what there was since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectStatus {
    /// Overwrites go in place, and so are not all or nothing.
    pub in_place: bool,
    /// Processes write through the kernel, because the pool is of class `log`.
    pub reads_only: bool,
    /// Processes that the server talks to now.
    pub processes: u64,
    /// Files that are leased to one of them now.
    pub leases: u64,
    /// Files that some of them read directly now.
    pub files_read: u64,
    /// Files among them of which a process has blocks mapped into its memory now.
    pub files_mapped: u64,
    /// Segments that they may have mapped now, each as often as it was handed out to a process.
    pub segments: u64,
    /// Attachments made since the mount, as all that follows: files times processes, anew whenever one had ended.
    pub attached: u64,
    /// Leases among them.
    pub leases_granted: u64,
    /// Leases that ended because somebody else wanted the file.
    pub leases_taken_back: u64,
    /// Leases of processes that were alive and did not go on with a write: nobody waited for them.
    pub leases_forced: u64,
    /// Leases that ended because their process had not written for the mount's timeout.
    pub leases_timed_out: u64,
    /// Records of direct writes that have become part of their files.
    pub records_folded: u64,
    /// Processes that were told to give back what they had mapped of a file, because somebody else wanted it.
    pub mappings_taken_back: u64,
    /// Those among them that did not in time (they are stopped): what they see of the file is not given to others before they do.
    pub mappings_not_given_back: u64,
    /// Requests of processes that were refused, by reason.
    pub refusals: Refusals,
}

/// Requests that were refused, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusals {
    /// Another version of the protocol, or a message that makes no sense.
    pub protocol: u64,
    /// No regular file of this mount, or not opened for what was asked.
    pub not_ours: u64,
    /// The file belongs to another user than the process's.
    pub not_yours: u64,
    /// Others use the file.
    pub busy: u64,
    /// The file, its mode or its place do not allow it.
    pub unsuitable: u64,
    /// No room for another lease.
    pub no_room: u64,
    /// The attachment had ended already: that is how a process learns of it.
    pub ended: u64,
    /// The server failed; its log says more.
    pub failed: u64,
    /// Too many processes, or too many of one user: the process found nobody to talk to. It tries again after a second.
    pub too_many: u64,
}

impl Refusals {
    /// The reasons by their names, with their counts.
    pub fn by_reason(&self) -> [(&'static str, u64); 9] {
        [
            ("protocol", self.protocol),
            ("not_ours", self.not_ours),
            ("not_yours", self.not_yours),
            ("busy", self.busy),
            ("unsuitable", self.unsuitable),
            ("no_room", self.no_room),
            ("ended", self.ended),
            ("failed", self.failed),
            ("too_many", self.too_many),
        ]
    }
}

/// A process that reads and writes files directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its number.
    pub process: u32,
    /// The user it runs as.
    pub user: u32,
    /// Its command.
    pub command: String,
    /// Inodes of files that it reads directly.
    pub files_read: Vec<u64>,
    /// Inodes of files that are leased to it.
    pub files_leased: Vec<u64>,
    /// Inodes of files that it has mapped into its memory since it reads them directly.
    #[serde(default)]
    pub files_mapped: Vec<u64>,
    /// Segments that it may have mapped.
    pub segments: u64,
    /// Reads done directly, by the process's own count, as all that follows.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes done directly.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Operations on files of the mount that went through the kernel.
    pub kernel_path: KernelPath,
}

/// Why operations went through the kernel, and how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPath {
    /// The file was not attached yet: that takes some operations.
    pub not_attached: u64,
    /// The server refused to attach it, or somebody else wanted it, a moment ago: the process pauses before it asks again.
    pub refused: u64,
    /// Somebody else wanted the file, or its lease had ended because it was not used.
    pub taken_back: u64,
    /// A block is where the process may not go, or nowhere.
    pub no_place: u64,
    /// It is not offered directly, or the file was not opened for it.
    pub not_offered: u64,
    /// The lease had no room.
    pub no_room: u64,
}

impl KernelPath {
    /// All of them. They are a process's own words, so their sum may be too much for a number.
    pub fn operations(&self) -> u64 {
        [
            self.not_attached,
            self.refused,
            self.taken_back,
            self.no_place,
            self.not_offered,
            self.no_room,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}
