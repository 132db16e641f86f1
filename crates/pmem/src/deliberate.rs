//! Bugs on purpose: each variant makes one layer skip or swap one step, so that a crash test can prove that it would
//! notice. Without the cargo feature `deliberate-bugs` all of it compiles to nothing.

/// One mistake that somebody could make.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Bug {
    /// Data blocks are stored but not flushed before the record that points to them.
    SkipDataFlush = 1,
    /// An operation returns before its record is fenced.
    SkipRecordFence,
    /// The record is written before the data it points to is fenced, and without the data's checksum.
    SkipDataFence,
    /// A checkpoint retires records whose lines it never flushed.
    SkipCheckpointFlush,
    /// A checkpoint moves its mark before it flushes.
    CheckpointBeforeFlush,
    /// A block pointer is stored in two halves.
    TornPointer,
    /// A freed block never becomes free.
    LeakBlock,
    /// A block is freed twice.
    DoubleFree,
    /// The name index keeps a name that was removed.
    StaleIndex,
    /// A freed block is handed out while a live record still names it.
    ReuseBeforeCheckpoint,
    /// An inode is changed without its checksum.
    SkipInodeChecksum,
    /// Recovery applies records in journal order instead of sequence order.
    ReplayOutOfOrder,
    /// Recovery believes a record without checking it.
    SkipRecordChecksum,
    /// Truncation leaves old bytes behind the end of the last block.
    ZeroTailForgotten,
    /// Changes are applied in place before their record is durable.
    SwapApplyAndCommit,
    /// Rename removes the old name in a transaction of its own before it adds the new one.
    RenameLosesTarget,
    /// Recovery believes a record without looking at the data that it checks.
    SkipDataCheck,
    /// Recovery takes data that a later record changed for torn.
    DistrustChangedData,
    /// A journal moves without its new place being durable.
    ForgetJournalPlace,
    /// A transaction changes an inode where it was before its block moved.
    ForgetMove,
    /// A reader believes what it copied out of the read cache without looking whether the page is still the same.
    SkipVersionCheck,
    /// A batch of the log is acknowledged before it is written.
    LogAcknowledgesEarly,
    /// A batch of the log is acknowledged while an earlier one is on its way.
    LogAcknowledgesOutOfOrder,
    /// A failed write of the log is repeated as if nothing had happened.
    LogRetriesFailedWrite,
    /// The log's ring is free before the root that frees it is durable.
    LogFreesBeforeRoot,
    /// The log's newest root is overwritten.
    LogRootInPlace,
    /// A root of the log is not durable when the ring before it is free.
    LogRootNotDurable,
    /// The replay of the log does not check entries.
    LogSkipsBodyCheck,
    /// The replay of the log takes any whole batch for the next one.
    LogBelievesStale,
    /// The log is not flushed when it is opened.
    LogSkipsFlushAtOpen,
    /// The part of a batch behind the ring's end is not durable.
    LogWrapNotDurable,
    /// The measurement of the disk writes where the log has batches.
    LogMeasuresOverBatches,
    /// The read cache shows a page before its bytes are there.
    PublishBeforeCopy,
    /// A write leaves the read cache's copies as they are.
    ForgetInvalidation,
    /// The server believes a leased file's newest record without looking at its data.
    SkipLeaseDataCheck,
    /// The holder of a lease writes a record that shares no fence with its data before that data is fenced.
    SkipLeaseDataFence,
    /// Records of a lease are counted as folded in a transaction before the one that folds them.
    CountBeforeFold,
    /// What an append that did not happen left behind the end of a leased file stays there.
    LeaveLeaseTail,
    /// Who has a file attached is not told that somebody changed its attributes.
    KeepAttributesSecret,
    /// The holder of a lease overwrites bytes in place that his newest record vouches for.
    SkipLeaseStamp,
    /// An overwrite in place returns before its bytes are fenced.
    SkipInPlaceFence,
    /// The server believes that a leased file has whatever block a record of its holder names.
    BelieveHoldersBlock,
    /// The server believes whatever size a record of a leased file's holder names.
    BelieveHoldersSize,
    /// The server changes a file without waiting for processes that have its blocks mapped.
    ForgetMappings,
    /// Recovery leaves torn records where a later one can make them whole.
    KeepTornRecords,
    /// A process joins the readers of a file before the file system tells them of changes, which takes a while.
    JoinUnwatched,
    /// A segment goes to another owner when the process is gone that it was given to, whoever has inherited it.
    ForgetHeirs,
    /// A file that gets another owner keeps its blocks in the old one's segments.
    LeaveBlocksBehind,
    /// A segment that gets an owner keeps what others have left in it.
    KeepResidue,
    /// Bytes behind the end of a file are taken for zeros where processes may write them.
    TrustTail,
    /// Recovery judges records by data that a process can change.
    TrustHeldData,
    /// Who goes in to a description does not ask whether the number still leads there.
    BelieveOldNumber,
    /// A description is dropped while somebody uses it.
    EndUsedPlace,
    /// A position is taken over beside a call that moves the kernel's.
    TakeMovingPosition,
    /// `dup` does not ask what has happened to its number since the kernel gave it.
    MissTraceOfClose,
    /// Of two `dup2` to one number the one that ends last is believed to be the one that the kernel did last.
    BelieveSecondDup2,
    /// Who has opened a number takes its position to be his, whatever duplicates others made meanwhile.
    MissGivenNumber,
    /// Two who pass the lock of a position by both tell the kernel where it is, and one believes that it is his to say.
    HandOverTwice,
    /// Records behind a damaged one are dropped, and nothing is said.
    DropDamagedRecords,
    /// Who uses the kernel's position beside somebody who takes it over does not say so.
    LeavePositionFree,
    /// A call returns before the log has its record.
    AcknowledgeBeforeSync,
    /// A batch of the log has data as later records left it.
    CopyAheadOfCut,
    /// The image gets blocks with changes that the log does not have.
    ImageAheadOfLog,
    /// The log is trimmed before the image is written.
    TrimBeforeFlush,
    /// Data goes to its place although entries of the log change it, too.
    PlaceLoggedBlock,
    /// Data is written to its place when the batch that publishes it is durable.
    PlaceBehindBatch,
    /// The log is trimmed before the image is flushed.
    SkipImageFlush,
    /// The image's stamp is written when all blocks are, and not before the first of them.
    StampBehindPieces,
    /// Records that only a killed server's memory has are not logged before recovery retires them.
    ForgetTail,
    /// A checkpoint of the memory retires records that the log does not have.
    RetireBeforeLog,
    /// The log has the segment table as it was when the pool was opened.
    ForgetTable,
    /// Recovery applies the batches of the log in the wrong order.
    ReplayBatchesBackwards,
    /// A process reads directly what is not durable yet, where answers wait for that.
    ReadBeforeLog,
    /// A process of class `log` gets segments whose former content was cleared in memory alone.
    ShowImageResidue,
    /// A block of the image is loaded over what is in memory already.
    LoadOverChanges,
    /// Blocks beside the one that is asked for count as loaded, and were not read.
    CountUnread,
    /// A server takes the memory of a killed one for whole, although it was being loaded.
    TakeHolesForZeros,
    /// A process gets a segment that is not loaded yet.
    ShowUnloaded,
    /// A record points to blocks of the device before they are written.
    RecordBeforeToken,
    /// A record points to blocks of the device that are written and not flushed.
    SwapWithoutFlush,
    /// A device that failed to write is believed.
    SwallowDeviceError,
    /// A block that a device returns is believed without a look at its checksum.
    TrustDevice,
    /// A block of the device is used anew while a thread reads it.
    FreeBeforeReaders,
    /// A block that was read from the device is kept as a copy, although the file has changed.
    StaleFill,
    /// A small write into a block of the device is logged, as if the block were memory.
    LogDeviceData,
    /// A pointer to the device is taken for one to memory.
    IgnoreLocation,
    /// A block that moves to the device is freed at both places.
    FreeBothPlaces,
    /// A block of memory that is freed keeps its twin on the device.
    KeepTwinOfFreed,
    /// A block that a process has mapped is evicted.
    EvictAttached,
    /// A block that has changed in place counts as clean, and is evicted without a look at it.
    EvictUnseen,
    /// A twin stays with memory although a pointer names it.
    KeepTwinOfEvicted,
}

#[cfg(feature = "deliberate-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// 0, or the number of the bug that is switched on.
    static ACTIVE: AtomicU8 = AtomicU8::new(0);

    /// Switches one bug on for the whole process, or all off.
    ///
    /// # Panics
    /// If other tests may run in this process: they would fail by this bug.
    pub fn set(bug: Option<super::Bug>) {
        assert!(
            bug.is_none() || is_alone(),
            "deliberate bugs are for a test that is alone in its process: cargo nextest run"
        );
        ACTIVE.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
    }

    /// Whether no other test runs in this process: nextest starts a process for each test, and
    /// the main thread runs a program, or libtest with one thread.
    fn is_alone() -> bool {
        std::env::var_os("NEXTEST").is_some() || std::thread::current().name() == Some("main")
    }

    /// Is this bug switched on?
    #[inline]
    pub fn is(bug: super::Bug) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(not(feature = "deliberate-bugs"))]
mod switch {
    /// Does nothing in a build without the feature `deliberate-bugs`.
    pub fn set(_bug: Option<super::Bug>) {}

    /// Always false in a build without the feature `deliberate-bugs`.
    #[inline(always)]
    pub const fn is(_bug: super::Bug) -> bool {
        false
    }
}

pub use switch::{is, set};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bug_that_was_set_is_on() {
        set(Some(Bug::TornPointer));
        assert_eq!(is(Bug::TornPointer), cfg!(feature = "deliberate-bugs"));
        assert!(!is(Bug::LeakBlock));
        set(None);
        assert!(!is(Bug::TornPointer));
    }
}
