//! Every kind of fault: its name, how bad it is, what it means for the user, what repairing does.

use std::fmt;

/// How bad a fault is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Nothing is lost and nothing will be.
    Note,
    /// Two places contradict each other; everything can be derived again.
    Inconsistency,
    /// Something is lost, or will be if the pool is written to.
    Damage,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Severity::Note => "note",
            Severity::Inconsistency => "inconsistency",
            Severity::Damage => "damage",
        })
    }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident, $name:literal, $severity:ident, $summary:literal, $consequence:literal, $repair:literal;)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum FaultKind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            /// A name for programs; it does not change between releases.
            pub const fn name(self) -> &'static str {
                match self { $(FaultKind::$kind => $name,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(FaultKind::$kind => Severity::$severity,)* }
            }

            /// What is wrong, in a few words.
            pub const fn summary(self) -> &'static str {
                match self { $(FaultKind::$kind => $summary,)* }
            }

            /// What it means for the user.
            pub const fn consequence(self) -> &'static str {
                match self { $(FaultKind::$kind => $consequence,)* }
            }

            /// What repairing does.
            pub const fn repair(self) -> &'static str {
                match self { $(FaultKind::$kind => $repair,)* }
            }
        }
    };
}

kinds! {
    /// The pool is shorter than its superblock says.
    PoolTruncated, "pool-truncated", Damage, "a part of the pool is missing",
        "files and names in the missing part are lost", "the missing part is made anew, empty";
    /// Neither copy of the superblock is valid.
    SuperblocksLost, "superblocks-lost", Damage, "no valid superblock",
        "nothing can be read", "none; restore the pool from a copy";
    /// One copy of the superblock is not valid.
    SuperblockDamaged, "superblock-damaged", Damage, "a copy of the superblock is damaged",
        "losing the other copy too would lose the pool", "copied from the valid one";
    /// Both copies are valid and differ.
    SuperblocksDiffer, "superblocks-differ", Inconsistency, "the second superblock differs from the first",
        "losing the first copy would make the pool look like another one", "copied from the first";
    /// Bytes of the header that are reserved are not zero.
    HeaderNotZero, "header-not-zero", Note, "reserved bytes of the header are not zero",
        "none today; a later version could misread them", "zeroed";
    /// The checkpoint word fails its check.
    CheckpointDamaged, "checkpoint-damaged", Damage, "the checkpoint word fails its check",
        "the pool cannot be mounted: nobody can tell which journal records are live",
        "a single flipped bit is corrected, else the number is derived from the journals";
    /// The mark of a clean unmount fails its check or contradicts the checkpoint.
    CleanMarkDamaged, "clean-mark-damaged", Inconsistency, "the mark of a clean unmount is damaged",
        "the next mount takes longer", "removed: the next mount rebuilds the volatile state";
    /// The place of half a journal is damaged.
    JournalPointerDamaged, "journal-pointer-damaged", Damage, "the place of a journal is damaged",
        "the pool cannot be mounted; records of the last moments may wait there",
        "a single flipped bit is corrected, else the journal gets a new, empty place";
    /// A journal shares blocks with another.
    JournalOverlap, "journal-overlap", Damage, "a journal overlaps another",
        "records of two journals overwrite each other", "the second gets a new, empty place";
    /// Live records were not replayed before the check.
    RecordsNotReplayed, "records-not-replayed", Note, "journal records wait for replay",
        "faults may be reported that a mount would not see", "replayed";
    /// A whole live record follows a broken one.
    RecordsLost, "records-lost", Damage, "a record inside a journal is damaged",
        "operations of the last moments before the crash are lost",
        "a single flipped bit is corrected, else the records after it are dropped";
    /// A record of direct writes is damaged.
    LeaseRecordsLost, "lease-records-lost", Damage, "a record of direct writes is damaged",
        "the file cannot be opened; direct writes of the last moments before the crash may be lost",
        "a single flipped bit is corrected, else the records after it are dropped, and the file's blocks may be of different moments";
    /// An entry of the segment table fails its check.
    SegmentEntryDamaged, "segment-entry-damaged", Inconsistency, "the segment's owner is unknown",
        "the segment counts as shared", "a single flipped bit is corrected, else derived from the blocks in it";
    /// A segment without an owner holds blocks.
    SegmentUnassigned, "segment-unassigned", Damage, "the segment holds blocks but has no owner",
        "the pool cannot be mounted", "assigned to the file system or shared, by what is in it";
    /// A segment of an owner holds metadata.
    SegmentMismatch, "segment-mismatch", Damage, "a user's segment holds metadata",
        "a process with direct access could change metadata", "the segment becomes a shared one";
    /// A segment of an owner holds another user's data.
    SegmentForeign, "segment-foreign", Damage, "a user's segment holds another user's data",
        "a process with direct access could read and change it", "the segment becomes a shared one";
    /// The saved wear of a segment fails its check.
    WearDamaged, "wear-damaged", Note, "the segment's wear fails its check",
        "the segment counts as unworn", "set to zero";
    /// Whose content a segment holds fails its check, or contradicts its owner.
    ContentWrong, "content-wrong", Inconsistency, "whose content the segment holds cannot be",
        "a process with direct access might see what others have left there", "set to anybody's: it is cleared before a process gets it";
    /// The saved volatile state cannot be read.
    SavedStateDamaged, "saved-state-damaged", Inconsistency, "the saved state cannot be read",
        "the next mount takes longer", "dropped: the next mount rebuilds it";
    /// The saved volatile state contradicts the inodes.
    SavedStateWrong, "saved-state-wrong", Damage, "the saved state contradicts the inodes",
        "blocks or inodes in use would be handed out again", "dropped: the next mount rebuilds it";
    /// The inode table's own inode is damaged beyond use.
    TableLost, "table-lost", Damage, "the inode table cannot be found",
        "no file can be reached", "none; restore the pool from a copy";
    /// The inode table's own inode is damaged, but its map is there.
    TableInodeLost, "table-inode-lost", Damage, "the inode table's own inode is damaged",
        "the pool cannot be mounted", "made anew from the table's blocks, which are found by their content";
    /// A block of the inode table is missing.
    TableHole, "table-hole", Damage, "a block of the inode table is missing",
        "sixteen inodes cannot be read, and the pool cannot be mounted",
        "searched among the unused blocks; an empty one is put there if it is not found";
    /// An inode's checksum does not match.
    InodeChecksum, "inode-checksum", Damage, "the inode's checksum does not match",
        "the inode cannot be used, and the pool may not mount",
        "a single flipped bit is corrected; else the inode is kept, because it is plausible, but its size ends with its blocks and set-id bits go";
    /// Nobody knows whose a damaged inode is.
    InodeOwner, "inode-owner", Damage, "the owner of the damaged inode is none that the pool has, or it is a device",
        "its rights cannot be trusted", "given to root, without rights for others, and put into lost+found";
    /// An inode is beyond repair.
    InodeLost, "inode-lost", Damage, "the inode makes no sense",
        "the file is lost", "the inode is freed and its names are removed";
    /// The root directory is missing.
    RootLost, "root-lost", Damage, "the root directory is missing",
        "the pool cannot be mounted", "made anew; what was in it is put into lost+found";
    /// Fields of an inode that must be zero are not.
    InodeFields, "inode-fields", Inconsistency, "fields of the inode that must be zero are not",
        "none today; a later version could misread them", "zeroed";
    /// A free inode has content.
    FreeInodeNotEmpty, "free-inode-not-empty", Inconsistency, "a free inode is not empty",
        "none", "zeroed";
    /// The size is impossible.
    InodeSize, "inode-size", Damage, "the size is impossible",
        "reading the end of the file fails", "set to the end of the last block";
    /// The height of the block map does not fit its root.
    InodeHeight, "inode-height", Damage, "the height of the block map is wrong",
        "the content cannot be read", "set to what the root pointer says, else the map is emptied";
    /// The number of blocks owned is wrong.
    BlockCount, "block-count", Inconsistency, "the number of blocks is wrong",
        "du and quotas are wrong", "counted anew";
    /// A block pointer fails its check or points outside the pool.
    PointerDamaged, "pointer-damaged", Damage, "the block pointer is damaged",
        "what it points to cannot be read", "a single flipped bit is corrected, else the pointer becomes a hole";
    /// A pointer to metadata is marked unwritten.
    PointerFlag, "pointer-flag", Inconsistency, "a pointer to metadata is marked unwritten",
        "what it points to cannot be read", "the mark is removed";
    /// A block has two owners.
    BlockShared, "block-shared", Damage, "the block belongs to something else too",
        "writing one would change the other", "the pointer found second becomes a hole";
    /// A written block lies beyond the end.
    DataBeyondEnd, "data-beyond-end", Inconsistency, "a written block lies beyond the end",
        "old content would appear if the file grew", "the block is freed";
    /// Bytes of the last block beyond the end are not zero.
    TailNotZero, "tail-not-zero", Inconsistency, "bytes beyond the end are not zero",
        "old content would appear if the file grew", "zeroed";
    /// A symbolic link has no target, or another than it was made with.
    SymlinkTarget, "symlink-target", Damage, "the symbolic link's target is missing or damaged",
        "the link leads nowhere, or elsewhere", "a single flipped bit is corrected, else the link is removed";
    /// Extended attributes cannot be read.
    AttributesDamaged, "attributes-damaged", Damage, "the extended attributes cannot be read",
        "the attributes of this file are lost", "a single flipped bit is corrected, else the attributes are removed";
    /// A block of a directory is missing.
    DirectoryHole, "directory-hole", Damage, "a block of the directory is missing",
        "the directory cannot be used; the names in the block are lost",
        "an empty block is put there; files that lost their name go to lost+found";
    /// A record of a directory is damaged.
    RecordDamaged, "record-damaged", Damage, "a record of the directory is damaged",
        "the directory cannot be used",
        "a single flipped bit is corrected, else the record is removed; a file that lost its name goes to lost+found";
    /// Free ranges of a directory are not merged.
    FreeRangesSplit, "free-ranges-split", Inconsistency, "neighbouring free ranges are not merged",
        "the directory cannot be used", "merged";
    /// A name exists twice in a directory.
    NameTwice, "name-twice", Damage, "the name exists twice in its directory",
        "only one of the two files can be reached", "the second name is removed; its file goes to lost+found";
    /// A name leads to no inode.
    NameDangling, "name-dangling", Damage, "the name leads to an inode that is not in use",
        "opening it fails", "the name is removed";
    /// A name leads to a missing block of the inode table.
    NameUnknown, "name-unknown", Damage, "the inode is in the missing part of the inode table",
        "opening the file fails", "nothing if the part is found, else the name is removed";
    /// A name carries the wrong type.
    NameType, "name-type", Inconsistency, "the type in the directory differs from the inode's",
        "listings show the wrong type", "the type is taken from the inode";
    /// A directory has a second name, or the root has one.
    DirectoryNamedTwice, "directory-named-twice", Damage, "the directory has another name already",
        "walking the tree may not end", "this name is removed";
    /// Directories contain each other.
    DirectoryCycle, "directory-cycle", Damage, "the directory is inside itself",
        "it cannot be reached from the root", "taken out of the circle and put into lost+found";
    /// The link count is wrong.
    LinkCount, "link-count", Inconsistency, "the link count is wrong",
        "the file could be freed too early, or never", "counted anew";
    /// The parent of a directory is wrong.
    ParentWrong, "parent-wrong", Inconsistency, "the parent is wrong",
        "`..` leads to the wrong directory", "set to the directory that holds the name";
    /// An inode has links but no name.
    InodeUnnamed, "inode-unnamed", Damage, "no name leads to the inode",
        "the file takes space and cannot be reached", "put into /lost+found as #NUMBER";
    /// A directory was removed but has entries.
    OrphanNotEmpty, "orphan-not-empty", Damage, "the directory is marked as removed but has entries",
        "the next mount would free it, and its files with it", "it is kept and put into lost+found";
    /// An inode waits to be freed although the unmount was clean.
    OrphanAfterUnmount, "orphan-after-unmount", Inconsistency, "an inode without links survived a clean unmount",
        "its space is lost until a mount rebuilds", "the clean mark is removed: the next mount frees it";
}
