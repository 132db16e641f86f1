//! How a file is attached.

use super::{Answer, Held, Session, failed, refused};
use crate::direct::leased::Lessee;
use crate::direct::memory::{FileMemory, Segments};
use crate::direct::reading::Reader;
use crate::direct::registry::Attachment;
use crate::direct::sender::{self, Sender};
use crate::direct::{LEASE_SIZE, LEASE_SIZE_SMALL};
use ::direct::protocol::{Attached, Prospect, Refusal, Reply, Request};
use fs::{Attributes, Node};
use pmem::deliberate::{self, Bug};
use rustix::fs::OFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use txn::{Domain, Store};

/// A lease as it was made.
struct Made {
    held: Held,
    attached: Attached,
    /// Where its blocks are.
    segments: Vec<u32>,
}

/// Files that one process may have attached. Those beyond go through the kernel.
const ATTACHMENTS_OF_ONE: usize = 4096;

impl<S: Store> Session<S> {
    /// Attaches the file that the process has proved to have open, by having its descriptor.
    pub(super) fn attach(
        &mut self,
        descriptor: OwnedFd,
        request: &Request,
        sender: Sender,
    ) -> Answer {
        let (for_writing, prospect) = (request.first == 1, Prospect::of(request));
        let left = self.take_left(request.file);
        self.may_attach(for_writing)?;
        let (node, attributes) = self.prove(descriptor.as_fd(), for_writing)?;
        let domain = Domain::of_file(attributes.mode, attributes.uid, attributes.gid);
        if !sender.may_have(attributes.uid, self.process.id) {
            return Err(Refusal::NotYours);
        }
        if self
            .service
            .shared
            .direct
            .may_have_grown(attributes.inode.get())
        {
            refresh(descriptor.as_fd());
        }
        let number = self.next_attachment;
        // Before there is anything that would have to be let go.
        let next = number.checked_add(1).ok_or(Refusal::NoRoom)?;
        let mut segments = Vec::new();
        let (held, attached) = match for_writing {
            false => {
                let first_block = prospect.first_block;
                self.attach_for_reading(node, domain, &attributes, first_block)?
            }
            true => {
                let lease = self.lease(node, domain, &attributes, number, prospect, left)?;
                segments = lease.segments;
                (lease.held, lease.attached)
            }
        };
        self.next_attachment = next;
        self.attached.insert(number, held);
        self.counts().attached.add(1);
        self.allow(domain, for_writing);
        let is_new = attached.is_same_memory == 0;
        let memory = self.attached.get(&number).map(Held::memory);
        let memory = memory.filter(|_| is_new);
        let descriptor = match memory {
            Some(memory) if for_writing => memory.hand_over(),
            Some(memory) => memory.share().map_err(failed)?,
            None => None,
        };
        let (segments, others) = self.segments_beside(segments, sender);
        let attached = Attached {
            file: u64::from(number),
            inode: attributes.inode.get(),
            segments,
            ..attached
        };
        let beside = descriptor.into_iter().chain(others);
        Ok((attached.reply(), beside.collect()))
    }

    /// The file behind a descriptor, if it is one of this mount that was opened for this.
    fn prove(
        &self,
        descriptor: BorrowedFd<'_>,
        for_writing: bool,
    ) -> Result<(Node, Attributes), Refusal> {
        let not_ours = |_| Refusal::NotOurs;
        let flags = rustix::fs::fcntl_getfl(descriptor).map_err(not_ours)?;
        let is_open_for_it = match for_writing {
            true => flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            false => !flags.contains(OFlags::WRONLY),
        };
        let found = sender::look(descriptor).map_err(not_ours)?;
        if flags.contains(OFlags::PATH) || !is_open_for_it || !self.is_ours(&found) {
            return Err(Refusal::NotOurs);
        }
        let node = self.service.shared.nodes.get(found.stx_ino);
        let node = node.ok_or(Refusal::NotOurs)?;
        let attributes = self.service.files().attributes_unsettled(&node);
        let attributes = attributes.map_err(refused)?;
        match attributes.file_type() {
            fs::FileType::Regular => Ok((node, attributes)),
            _ => Err(Refusal::Unsuitable),
        }
    }

    fn attach_for_reading(
        &mut self,
        node: Node,
        domain: Domain,
        attributes: &Attributes,
        first_block: Option<u64>,
    ) -> Result<(Held, Attached), Refusal> {
        let inode = attributes.inode.get();
        let registry = &self.service.shared.direct;
        let reader = match registry.get(inode) {
            Some(Attachment::Leased(_)) => return Err(Refusal::Busy),
            Some(Attachment::Reading(reader)) if reader.may_be_joined() => reader,
            Some(Attachment::Reading(_)) => return Err(Refusal::Busy),
            None => {
                let memory = FileMemory::new(attributes.size_bytes, 0, 0, &self.process.account)?;
                let seen = self.service.files().store().seen_blocks();
                let reader = Reader::new(memory, inode, attributes.size_bytes, registry, seen);
                let attachment = Attachment::Reading(Arc::clone(&reader));
                if !registry.insert(inode, attachment) {
                    return Err(Refusal::Busy);
                }
                if deliberate::is(Bug::JoinUnwatched) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                let watched = self.service.files().watch(&node, Arc::clone(&reader) as _);
                if watched.as_ref().ok() != Some(&attributes.size_bytes) {
                    self.service.files().end_watch(&node, &*reader);
                    reader.end();
                    return Err(watched.map_or_else(refused, |_| Refusal::Busy));
                }
                reader.begin();
                reader.memory.fill_for_beginning(
                    self.service.files(),
                    &node,
                    domain,
                    attributes.size_bytes,
                    first_block,
                );
                registry.drop_from_kernel(inode);
                reader
            }
        };
        reader.join();
        // A later change ends the attachment first, so a live one shows durable bytes only.
        let is_settled =
            deliberate::is(Bug::ReadBeforeLog) || self.service.files().settle(&node).is_ok();
        let held = Held::Reading(Arc::clone(&reader), node, domain);
        if !is_settled || !reader.is_live() || self.has_unsaved_pages(inode) {
            self.let_go(held);
            return Err(Refusal::Busy);
        }
        let attached = Attached {
            size_bytes: reader.size_bytes,
            capacity_blocks: reader.memory.layout.capacity_blocks,
            ..no_attachment()
        };
        Ok((held, attached))
    }

    fn lease(
        &mut self,
        node: Node,
        domain: Domain,
        attributes: &Attributes,
        number: u32,
        prospect: Prospect,
        left: Option<FileMemory>,
    ) -> Result<Made, Refusal> {
        let inode = attributes.inode.get();
        let (registry, files) = (&self.service.shared.direct, self.service.files());
        let slot = self.free_slots.pop().ok_or(Refusal::NoRoom)?;
        let size = match prospect.writes_little {
            true => LEASE_SIZE_SMALL,
            false => LEASE_SIZE,
        };
        let (ring_blocks, spare_blocks) =
            (u64::from(size.ring_blocks), u64::from(size.spare_blocks));
        let left =
            left.and_then(|left| left.again(attributes.size_bytes, ring_blocks, spare_blocks));
        let is_same_memory = u64::from(left.is_some());
        let made = left.map_or_else(
            || {
                let account = &self.process.account;
                FileMemory::new(attributes.size_bytes, ring_blocks, spare_blocks, account)
            },
            Ok,
        );
        let made =
            made.map(|memory| Lessee::new(memory, inode, &self.process, (number, slot), registry));
        let lessee = match made {
            Ok(lessee) => lessee,
            Err(refusal) => {
                self.free_slots.push(slot);
                return Err(refusal);
            }
        };
        // Before its place is taken, whatever becomes of the lease: a read through the kernel would not end it any more.
        if let Some(Attachment::Reading(reader)) = registry.get(inode) {
            reader.end();
        }
        // First, so that no attributes of before the lease stay with the kernel.
        let attachment = Attachment::Leased(Arc::clone(&lessee));
        if !registry.insert(inode, attachment.clone()) {
            self.free_slots.push(slot);
            return Err(Refusal::Busy);
        }
        registry.may_grow(inode);
        let granted = files.lease(&node, size, Arc::clone(&lessee) as _);
        let held = Held::Leased(Arc::clone(&lessee), node.clone(), domain);
        let grant = match granted {
            Ok(grant) => grant,
            Err(error) => {
                registry.remove(inode, &attachment);
                self.free_slots.push(slot);
                return Err(refused(error));
            }
        };
        let mut owners = Segments::new(files, domain);
        let spares = grant.spares.iter().map(|spare| spare.block);
        let blocks = grant.ring.blocks().iter().copied().chain(spares);
        let are_owners = blocks.clone().all(|block| owners.is_owners(block));
        let mut segments: Vec<u32> = blocks.filter_map(|block| owners.of(block)).collect();
        segments.dedup();
        lessee.publish(&grant);
        if grant.is_empty {
            lessee.memory.fill_empty();
        } else {
            lessee.memory.forget_empty();
            let (size_bytes, first_block) = (grant.size_bytes, prospect.first_block);
            lessee
                .memory
                .fill_for_beginning(files, &node, domain, size_bytes, first_block);
        }
        registry.drop_from_kernel(inode);
        let is_seen = registry.is_seen(inode) || self.has_unsaved_pages(inode);
        if !are_owners || is_seen || lessee.has_ended() {
            self.let_go(held);
            return Err(if are_owners {
                Refusal::Busy
            } else {
                Refusal::NoRoom
            });
        }
        self.counts().leases_granted.add(1);
        self.looks.begin();
        let attached = Attached {
            is_lease: 1,
            size_bytes: grant.size_bytes,
            capacity_blocks: lessee.memory.layout.capacity_blocks,
            ring_blocks,
            spare_blocks,
            salt: grant.salt.0,
            next: grant.next,
            slot: slot as u64,
            is_same_memory,
            is_empty: u64::from(grant.is_empty),
            ..no_attachment()
        };
        Ok(Made {
            held,
            attached,
            segments,
        })
    }

    fn may_attach(&self, for_writing: bool) -> Result<(), Refusal> {
        match for_writing && self.service.reads_only {
            true => Err(Refusal::Unsuitable),
            false if self.has_all_it_may() => Err(Refusal::NoRoom),
            false => Ok(()),
        }
    }

    /// Whether the process has as many attachments as one may, with those that have not ended for good.
    fn has_all_it_may(&self) -> bool {
        let all = self.attached.len() + self.still_busy.len() + self.not_given_back.len();
        all >= ATTACHMENTS_OF_ONE
    }
}

/// Makes the kernel ask where a file of ours ends. When the attachment makes it drop what it has, answers that are on their way are thrown away; who reads then goes by this one.
fn refresh(descriptor: BorrowedFd<'_>) {
    let look = rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_FORCE_SYNC;
    // What comes of it is the kernel's affair.
    let _ = rustix::fs::statx(descriptor, c"", look, rustix::fs::StatxFlags::SIZE);
}

fn no_attachment() -> Attached {
    Attached::of(&Reply::of(&[]))
}
