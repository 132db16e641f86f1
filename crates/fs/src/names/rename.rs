//! Rename: replace, no-replace, exchange, whiteout, within and across directories. One transaction.

use crate::format::{FileType, InodeNumber, LINKS_MAX, RawInode, Timestamp};
use crate::inode::node::BodyWrite;
use crate::inode::node::{Body, Node};
use crate::inode::table::InodeTable;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::operation::Operation;
use crate::names::dentries::{Found, require_empty, require_name};
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::{NewInode, RenameOptions};
use txn::{Store, Transaction};

/// One side of a rename.
#[derive(Clone, Copy)]
struct Side<'a> {
    parent: &'a Node,
    name: &'a [u8],
}

/// The parents' locked states; one if both are the same directory.
struct Parents<'n> {
    from: BodyWrite<'n>,
    to: Option<BodyWrite<'n>>,
}

impl Parents<'_> {
    fn to(&self) -> &Body {
        self.to.as_deref().unwrap_or(&self.from)
    }
}

impl<S: Store> FileSystem<S> {
    /// Moves a name: one transaction, all or nothing.
    ///
    /// An existing target is replaced (an empty directory by a directory, anything else by anything that is
    /// no directory), unless the options say otherwise. Renaming one name of an inode to another of its names does nothing.
    ///
    /// # Errors
    ///
    /// [`FsError::NotFound`], [`FsError::AlreadyExists`] with `no_replace`, [`FsError::DirectoryNotEmpty`],
    /// [`FsError::IsADirectory`], [`FsError::NotADirectory`], [`FsError::InvalidArgument`] to move a
    /// directory into itself or for options that exclude each other, [`FsError::NoSpace`], [`FsError::ReadOnly`],
    /// [`FsError::Corrupt`].
    pub fn rename(
        &self,
        parent: &Node,
        name: &[u8],
        new_parent: &Node,
        new_name: &[u8],
        options: RenameOptions,
    ) -> Result<(), FsError> {
        let core = &*self.core;
        core.durably(|| {
            require_name(name)?;
            require_name(new_name)?;
            if options.exchange && (options.no_replace || options.whiteout) {
                return Err(FsError::InvalidArgument(
                    "exchange excludes the other rename options",
                ));
            }
            let from = Side { parent, name };
            let to = Side {
                parent: new_parent,
                name: new_name,
            };
            let across = parent.number() != new_parent.number();
            let _shape = across.then(|| core.renames.lock());
            let mut parents = core.lock_parents(parent, new_parent)?;
            let source = core
                .find(parent.number(), &parents.from, name)?
                .ok_or(FsError::NotFound)?;
            let target = core.find(new_parent.number(), parents.to(), new_name)?;
            if across {
                core.require_outside(source, new_parent, "a directory cannot move into itself")?;
                if let Some(target) = target.filter(|_| !options.no_replace) {
                    match core.require_outside(
                        target,
                        parent,
                        "a directory cannot move into itself",
                    ) {
                        // The target directory holds the source. (Its lock is held: to go on
                        // would be to wait for ourselves.)
                        Err(FsError::InvalidArgument(_)) if !options.exchange => {
                            return Err(FsError::DirectoryNotEmpty);
                        }
                        outcome => outcome?,
                    }
                }
            }
            match target {
                None if options.exchange => Err(FsError::NotFound),
                Some(_) if options.no_replace => Err(FsError::AlreadyExists),
                Some(target) if target.inode() == source.inode() => Ok(()),
                Some(target) if options.exchange => {
                    core.exchange(&mut parents, from, to, source, target)
                }
                target => core.move_name(&mut parents, from, to, source, target, options.whiteout),
            }
        })
    }
}

impl<S: Store> Core<S> {
    fn lock_parents<'n>(&self, from: &'n Node, to: &'n Node) -> Result<Parents<'n>, FsError> {
        if from.number() == to.number() {
            return Ok(Parents {
                from: self.lock_directory(from)?,
                to: None,
            });
        }
        // Only directories have a parent number that leads anywhere.
        from.read().require_directory()?;
        to.read().require_directory()?;
        // Ancestor first; the rename lock keeps the answer true. Unrelated directories by number.
        let from_first = if self.is_ancestor(from.number(), to)? {
            true
        } else if self.is_ancestor(to.number(), from)? {
            false
        } else {
            from.number() < to.number()
        };
        if from_first {
            let first = self.lock_to_exchange(from)?;
            Ok(Parents {
                from: first,
                to: Some(self.lock_to_exchange(to)?),
            })
        } else {
            let first = self.lock_to_exchange(to)?;
            Ok(Parents {
                from: self.lock_to_exchange(from)?,
                to: Some(first),
            })
        }
    }

    /// Locks one of two directories that change at the same moment: nobody shall see one without the other.
    fn lock_to_exchange<'n>(&self, node: &'n Node) -> Result<BodyWrite<'n>, FsError> {
        let mut body = self.lock_directory(node)?;
        if let Some(directory) = &mut body.directory {
            directory.shut();
        }
        Ok(body)
    }

    /// Whether `ancestor` is above `node` (or is it). The caller holds the rename lock and no inode's.
    fn is_ancestor(&self, ancestor: InodeNumber, node: &Node) -> Result<bool, FsError> {
        let mut node = node.clone();
        // Damaged parent pointers could form a circle.
        for _ in 0..InodeTable::capacity(&self.store).max(1) {
            if node.number() == ancestor {
                return Ok(true);
            }
            if node.number() == InodeNumber::ROOT {
                return Ok(false);
            }
            let parent = InodeNumber::new(node.read().raw.parent);
            node = self.node(parent)?;
        }
        Err(damaged_inode(node.number(), "its parents form a circle"))
    }

    /// Fails if the directory `moved` is `place` or above it. The parents are locked, so only parent numbers of
    /// unlocked directories are read: `place` itself is compared first, then its ancestors from the medium.
    fn require_outside(
        &self,
        moved: Found,
        place: &Node,
        message: &'static str,
    ) -> Result<(), FsError> {
        if moved.file_type != FileType::Directory {
            return Ok(());
        }
        let mut number = place.number();
        for _ in 0..InodeTable::capacity(&self.store).max(1) {
            if number == moved.inode() {
                return Err(FsError::InvalidArgument(message));
            }
            if number == InodeNumber::ROOT {
                return Ok(());
            }
            // A directory's parent changes only under the rename lock, so the medium's word is stable.
            number = InodeNumber::new(self.table.load(&self.store, number)?.parent);
        }
        Err(damaged_inode(number, "its parents form a circle"))
    }

    fn move_name(
        &self,
        parents: &mut Parents<'_>,
        from: Side<'_>,
        to: Side<'_>,
        source: Found,
        target: Option<Found>,
        whiteout: bool,
    ) -> Result<(), FsError> {
        let moved = self.node(source.inode())?;
        let victim = target.map(|target| self.node(target.inode())).transpose()?;
        let (mut moved_body, mut victim_body) = self.lock_children(&moved, victim.as_ref())?;
        let is_directory = source.file_type == FileType::Directory;
        if let (Some(target), Some(body)) = (target, &victim_body) {
            match (is_directory, target.file_type == FileType::Directory) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                _ => require_empty(body)?,
            }
        }
        let now = self.now();
        let mut change = Change::start(self, parents, from, to, now)?;
        change.put(source, target)?;
        let hidden = if whiteout {
            Some(change.leave_whiteout(source)?)
        } else {
            change.take(source)?;
            None
        };
        let across = parents.to.is_some();
        if is_directory {
            change.directory_moved(across, target.is_some())?;
        }
        let mut new_moved = moved_body.raw;
        new_moved.touch_changed(now);
        if is_directory {
            new_moved.parent = to.parent.number().get();
        }
        change
            .transaction
            .log_inode(moved.number(), &moved_body.raw, &mut new_moved)?;
        let dropped = match (&victim, &victim_body) {
            (Some(victim), Some(body)) => {
                Some(self.drop_link(victim, body, now, &mut change.transaction)?)
            }
            _ => None,
        };
        let done = change.commit().inspect_err(|_| {
            if let Some(number) = hidden {
                self.table.release(number);
            }
        })?;
        done.apply(self, parents);
        moved_body.raw = new_moved;
        if let (Some(victim), Some(body), Some((new, freed))) = (&victim, &mut victim_body, dropped)
        {
            self.link_dropped(victim, body, new, freed);
        }
        Ok(())
    }

    fn exchange(
        &self,
        parents: &mut Parents<'_>,
        from: Side<'_>,
        to: Side<'_>,
        source: Found,
        target: Found,
    ) -> Result<(), FsError> {
        let first = self.node(source.inode())?;
        let second = self.node(target.inode())?;
        let (mut first_body, second_body) = self.lock_children(&first, Some(&second))?;
        let mut second_body = second_body.ok_or(FsError::NotFound)?;
        let now = self.now();
        let mut change = Change::start(self, parents, from, to, now)?;
        change.exchange(source, target)?;
        let (mut new_first, mut new_second) = (first_body.raw, second_body.raw);
        new_first.touch_changed(now);
        new_second.touch_changed(now);
        if source.file_type == FileType::Directory {
            new_first.parent = to.parent.number().get();
        }
        if target.file_type == FileType::Directory {
            new_second.parent = from.parent.number().get();
        }
        change
            .transaction
            .log_inode(first.number(), &first_body.raw, &mut new_first)?;
        change
            .transaction
            .log_inode(second.number(), &second_body.raw, &mut new_second)?;
        change.commit()?.apply(self, parents);
        first_body.raw = new_first;
        second_body.raw = new_second;
        Ok(())
    }

    /// Locks two children of locked parents, by number; a directory that may be replaced gets its index built.
    #[allow(clippy::type_complexity)]
    fn lock_children<'n>(
        &self,
        moved: &'n Node,
        other: Option<&'n Node>,
    ) -> Result<(BodyWrite<'n>, Option<BodyWrite<'n>>), FsError> {
        let lock_other = |node: &'n Node| {
            let mut body = node.write();
            if body.raw.file_type() == Some(FileType::Directory) {
                self.build_directory(node, &mut body)?;
            }
            Ok::<_, FsError>(body)
        };
        match other {
            None => Ok((moved.write(), None)),
            Some(other) if other.number() < moved.number() => {
                let other = lock_other(other)?;
                Ok((moved.write(), Some(other)))
            }
            Some(other) => {
                let moved = moved.write();
                Ok((moved, Some(lock_other(other)?)))
            }
        }
    }
}

/// The directories' part of a rename under construction.
struct Change<'c, S: Store> {
    core: &'c Core<S>,
    transaction: Operation<'c, S>,
    from: DirectoryChange<'c>,
    /// `None` if both names are in one directory.
    to: Option<DirectoryChange<'c>>,
    from_name: &'c [u8],
    to_name: &'c [u8],
    now: Timestamp,
}

struct DirectoryChange<'c> {
    number: InodeNumber,
    body: &'c Body,
    new: RawInode,
    plan: crate::directory::Plan,
}

impl<'c> DirectoryChange<'c> {
    fn start(node: &Node, body: &'c Body) -> Result<DirectoryChange<'c>, FsError> {
        let index = body
            .directory
            .as_ref()
            .ok_or_else(|| damaged_inode(node.number(), "its index is missing"))?;
        Ok(DirectoryChange {
            number: node.number(),
            body,
            new: body.raw,
            plan: index.plan(),
        })
    }

    fn done(self) -> DoneIn {
        DoneIn {
            number: self.number,
            new: self.new,
            plan: self.plan,
        }
    }
}

/// What the directories' states have to follow once the rename is durable.
struct Done {
    from: DoneIn,
    to: Option<DoneIn>,
}

/// The part of one directory.
struct DoneIn {
    number: InodeNumber,
    new: RawInode,
    plan: crate::directory::Plan,
}

impl DoneIn {
    fn apply<S: Store>(self, core: &Core<S>, body: &mut Body) {
        body.raw = self.new;
        core.commit_plan(self.number, body, self.plan);
    }
}

impl Done {
    fn apply<S: Store>(self, core: &Core<S>, parents: &mut Parents<'_>) {
        self.from.apply(core, &mut parents.from);
        if let (Some(body), Some(to)) = (&mut parents.to, self.to) {
            to.apply(core, body);
        }
    }
}

impl<'c, S: Store> Change<'c, S> {
    fn start(
        core: &'c Core<S>,
        parents: &'c Parents<'_>,
        from: Side<'c>,
        to: Side<'c>,
        now: Timestamp,
    ) -> Result<Change<'c, S>, FsError> {
        let second = parents
            .to
            .as_deref()
            .map(|body| DirectoryChange::start(to.parent, body))
            .transpose()?;
        Ok(Change {
            core,
            transaction: core.begin(),
            from: DirectoryChange::start(from.parent, &parents.from)?,
            to: second,
            from_name: from.name,
            to_name: to.name,
            now,
        })
    }

    /// The new name: in place of the target's dentry, or a new one.
    fn put(&mut self, source: Found, target: Option<Found>) -> Result<(), FsError> {
        let to = self.to.as_mut().unwrap_or(&mut self.from);
        match target {
            Some(target) => {
                let edit = to.plan.replace(
                    self.to_name,
                    target.candidate,
                    source.inode(),
                    source.file_type,
                );
                self.core
                    .log_edit(to.number, &to.body.raw, &edit, &mut self.transaction)
            }
            None => {
                let child = (source.inode(), source.file_type);
                let DirectoryChange {
                    number,
                    body,
                    new,
                    plan,
                } = to;
                self.core.insert_name(
                    (*number, body),
                    new,
                    plan,
                    self.to_name,
                    child,
                    &mut self.transaction,
                )
            }
        }
    }

    /// Removes the old name.
    fn take(&mut self, source: Found) -> Result<(), FsError> {
        use pmem::deliberate::{self, Bug};
        if deliberate::is(Bug::RenameLosesTarget) {
            return Ok(());
        }
        let DirectoryChange {
            number,
            body,
            new,
            plan,
        } = &mut self.from;
        self.core.remove_name(
            (*number, body),
            new,
            plan,
            self.from_name,
            source,
            &mut self.transaction,
        )
    }

    /// Makes the old name a whiteout: a character device 0/0.
    fn leave_whiteout(&mut self, source: Found) -> Result<InodeNumber, FsError> {
        let core = self.core;
        let number = core.table.take(&core.store, core.options.clock)?;
        let mode = FileType::CharacterDevice.mode_bits();
        let made = core
            .new_inode(number, mode, 1, &NewInode::default(), self.now)
            .and_then(|(old, mut raw)| {
                self.transaction.log_inode(number, &old, &mut raw)?;
                let from = &mut self.from;
                let edit = from.plan.replace(
                    self.from_name,
                    source.candidate,
                    number,
                    FileType::CharacterDevice,
                );
                core.log_edit(from.number, &from.body.raw, &edit, &mut self.transaction)
            });
        if made.is_err() {
            core.table.release(number);
        }
        made.map(|()| number)
    }

    /// Link counts of the parents when a directory moved.
    fn directory_moved(&mut self, across: bool, replaced: bool) -> Result<(), FsError> {
        if across {
            self.from.new.links = self.from.new.links.saturating_sub(1);
        }
        if across && !replaced {
            let to = self.to.as_mut().unwrap_or(&mut self.from);
            to.new.links = to
                .new
                .links
                .checked_add(1)
                .filter(|&l| l <= LINKS_MAX)
                .ok_or(FsError::TooManyLinks)?;
        }
        if !across && replaced {
            self.from.new.links = self.from.new.links.saturating_sub(1);
        }
        Ok(())
    }

    fn exchange(&mut self, source: Found, target: Found) -> Result<(), FsError> {
        let from = &mut self.from;
        let edit = from.plan.replace(
            self.from_name,
            source.candidate,
            target.inode(),
            target.file_type,
        );
        self.core
            .log_edit(from.number, &from.body.raw, &edit, &mut self.transaction)?;
        let to = self.to.as_mut().unwrap_or(&mut self.from);
        let edit = to.plan.replace(
            self.to_name,
            target.candidate,
            source.inode(),
            source.file_type,
        );
        self.core
            .log_edit(to.number, &to.body.raw, &edit, &mut self.transaction)?;
        let directories = |found: Found| u32::from(found.file_type == FileType::Directory);
        if let Some(to) = &mut self.to {
            let (coming, going) = (directories(source), directories(target));
            to.new.links = (to.new.links + coming).saturating_sub(going);
            self.from.new.links = (self.from.new.links + going).saturating_sub(coming);
        }
        Ok(())
    }

    fn commit(mut self) -> Result<Done, FsError> {
        for directory in [Some(&mut self.from), self.to.as_mut()]
            .into_iter()
            .flatten()
        {
            directory.new.touch_modified(self.now);
            self.transaction.log_inode(
                directory.number,
                &directory.body.raw,
                &mut directory.new,
            )?;
        }
        self.transaction.commit()?;
        Ok(Done {
            from: self.from.done(),
            to: self.to.map(DirectoryChange::done),
        })
    }
}
