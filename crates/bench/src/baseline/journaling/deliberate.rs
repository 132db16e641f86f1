//! Bugs on purpose, for the tests of this module: each check has to notice one.

/// One mistake.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests set them"))]
pub(super) enum Bug {
    /// A replaced block is reused before the disk was flushed.
    EvictWithoutDiskFlush,
    /// A replaced block is reused before its entry is durably free.
    ReuseBeforeEntryIsFree,
    /// A dirty block is replaced without being written.
    DropDirtyVictim,
    /// A block that changed on its way to the disk is replaced.
    DropChangedVictim,
    /// An error of the disk is taken for success.
    BelieveDisk,
    /// Tinca: the tail moves before the roles are switched.
    TailBeforeRoles,
    /// Tinca: an entry has role buffer from the start.
    SkipLogRole,
    /// Tinca: recovery looks at roles alone.
    IgnoreRing,
    /// Spindle: recovery does not look at the ring's entry beyond the tail.
    SkipExtraEntry,
    /// Spindle: ring entries of earlier laps are believed.
    IgnoreLap,
    /// Spindle: a sub-block changes before its undo log is durable.
    ChangeBeforeUndo,
    /// Spindle: the head moves before the entries are durable.
    HeadBeforeEntries,
    /// Spindle: recovery does not look at the metadata log.
    SkipUndo,
    /// Blocks are reused in the transaction that frees them.
    ReuseInTransaction,
    /// A bitmap changes in memory alone.
    ForgetBitmap,
    /// A grown file keeps what its last block held beyond the end.
    LeaveTail,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switches one bug on for this thread, or all off.
#[cfg(test)]
pub(super) fn set(bug: Option<Bug>) {
    ACTIVE.set(bug);
}

/// Is this bug switched on?
#[cfg(test)]
pub(super) fn is(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Always false outside of tests.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is(_bug: Bug) -> bool {
    false
}
