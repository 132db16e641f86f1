//! A process that uses files directly: its requests, and its end.

mod attaching;
mod expecting;
mod mapping;
mod segments;
mod strange;
mod unused;
mod waiting;

use super::Service;
use super::closing::{self, Closing};
use super::counts::Counts;
use super::leased::{Lessee, Process};
use super::makers::Bell;
use super::mapped::Caller;
use super::memory::FileMemory;
use super::profile::{Holdings, Profile};
use super::reading::Reader;
use super::sender;
use ::direct::layout::{MAP_CHUNK, SLOTS};
use ::direct::protocol::{
    CHUNKS_AT_ONCE, Kind, Prospect, Refusal, Reply, Request, Row, VERSION, Welcome,
};
use ::direct::transport;
use expecting::Expecting;
use fs::{FsError, Node};
use lease::Trust;
use parking_lot::Mutex;
use pmem::DurabilityClass;
use rustix::net::SendFlags;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::{Domain, Store};
use unused::Looks;
use waiting::Event;

/// A reply, and the descriptors that go beside it.
type Answer = Result<(Reply, Vec<OwnedFd>), Refusal>;

/// An attachment of this process.
enum Held {
    Reading(Arc<Reader>, Node, Domain),
    Leased(Arc<Lessee>, Node, Domain),
}

/// The conversation with one process, on a thread of its own: a process that makes the server wait makes nobody else wait.
pub(super) struct Session<S: Store> {
    service: Arc<Service<S>>,
    socket: OwnedFd,
    /// Readable when the process has ended.
    process_ended: OwnedFd,
    profile: Arc<Profile>,
    process: Arc<Process>,
    /// The process's file, until it has it.
    process_file: Option<File>,
    attached: BTreeMap<u32, Held>,
    /// Attachments that it has let go, but has not given back what it has mapped of them.
    not_given_back: Vec<Arc<Reader>>,
    /// Leases that were forced from it in the middle of a write, which it has not come to the end of.
    still_busy: Vec<Arc<Lessee>>,
    /// The memory of an attachment that it has let go, which another one can have.
    left_memory: Option<(u32, FileMemory)>,
    next_attachment: u32,
    /// When it is looked whether its leases are used.
    looks: Looks,
    /// When the next question is expected.
    expecting: Expecting,
    /// Slots that no lease uses.
    free_slots: Vec<usize>,
    /// Segments that the process has got, and whether for writing.
    segments: HashMap<u32, bool>,
    /// What was sent and is no file of this mount, while it is closed.
    strange: Vec<Closing>,
    /// What the process may map, and whether for writing.
    domains: Vec<(Domain, bool)>,
}

impl<S: Store> Session<S> {
    /// A conversation with the process `id`, which runs as `uid`, as soon as there is its socket.
    pub(super) fn new(
        service: Arc<Service<S>>,
        (id, uid): (rustix::process::Pid, u32),
        number: u64,
    ) -> io::Result<impl FnOnce(OwnedFd) -> Session<S>> {
        let flags = rustix::process::PidfdFlags::empty();
        let process_ended = rustix::process::pidfd_open(id, flags)?;
        let raw = id.as_raw_nonzero().get();
        let (user, file) = service
            .users
            .enter(raw, number, direct::layout::PROCESS_BYTES)?;
        let process = Arc::new(Process {
            id: raw,
            user,
            is_dead: false.into(),
            ended: process_ended.try_clone()?,
            was_late: Mutex::default(),
            account: service.accounts.of(uid),
            caller: Caller::default(),
        });
        let profile = Arc::new(Profile {
            id: raw,
            uid,
            process: Arc::clone(&process),
            holdings: Mutex::default(),
        });
        service.shared.direct.profiles.add(&profile);
        let looks = Looks::new(service.lease_timeout);
        let expecting = Expecting::new(Bell::new()?, &service.shared.direct.awake);
        Ok(move |socket| Session {
            service,
            socket,
            process_ended,
            profile,
            process,
            process_file: Some(file),
            attached: BTreeMap::new(),
            not_given_back: Vec::new(),
            still_busy: Vec::new(),
            left_memory: None,
            next_attachment: 1,
            looks,
            expecting,
            free_slots: (0..SLOTS).rev().collect(),
            segments: HashMap::new(),
            strange: Vec::new(),
            domains: Vec::new(),
        })
    }

    /// Answers until the process has hung up, and is at rest; or has ended, or the mount is about to.
    pub(super) fn run(mut self) {
        let mut listens = true;
        while listens || !self.is_at_rest() {
            match self.wait(listens) {
                Ok(Event::Request) => match self.answer() {
                    Ok(true) => {}
                    Ok(false) => {
                        listens = false;
                        self.hang_up();
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a process's conversation broke off");
                        listens = false;
                        self.hang_up();
                    }
                },
                Ok(Event::GaveBack) => {
                    let strange = self.process.caller.hear();
                    // There is only one such message, so whether it may send more does not matter.
                    self.close_strange(strange);
                    self.look_at_mappings();
                    self.look_at_writes();
                }
                Ok(Event::LookDue) => self.look_at_leases(),
                Ok(Event::Made) => self.expect_journal(),
                Ok(Event::Death) => {
                    self.process.is_dead.store(true, Ordering::Release);
                    break;
                }
                Ok(Event::Stop) => break,
                Err(error) => {
                    tracing::error!(%error, "a process's conversation cannot be waited for");
                    break;
                }
            }
        }
        self.stop_expecting();
        self.detach_all();
        // What it had let go before it died is given back as well.
        self.look_at_mappings();
        for reader in &self.not_given_back {
            let seen = self.service.files().store().seen_blocks();
            seen.leave(reader.memory.known_blocks());
        }
        if listens && !self.process.is_dead.load(Ordering::Acquire) && !self.segments.is_empty() {
            self.process.user.leave_behind();
        }
        for &segment in self.segments.keys() {
            self.service.take_in(segment);
        }
        self.wait_until_done();
        // Both as the last thing: what is closed then is this thread's own.
        if let Err(error) = self.process.caller.close_for_good() {
            tracing::warn!(%error, "what was sent to the server is closed by who comes last");
        }
        closing::close_socket(self.socket);
    }

    /// Ends the conversation, not the session: the process hears of it and does not wait for an answer.
    fn hang_up(&mut self) {
        // A socket that the other side has closed already says so; nothing is to be done about it.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.process.caller.close();
        self.stop_expecting();
        self.detach_all();
    }

    /// Whether a process that has hung up neither stores into blocks that were its own nor sees any that may become somebody else's.
    fn is_at_rest(&self) -> bool {
        self.still_busy.is_empty() && self.not_given_back.is_empty()
    }

    /// Whether the process has come to the end of writes in the middle of which leases were forced from it. Their blocks can be freed then.
    fn look_at_writes(&mut self) {
        let is_over = |lessee: &mut Arc<Lessee>| !lessee.is_stored_into();
        for lessee in self.still_busy.extract_if(.., is_over) {
            lessee.let_go();
            self.free_slots.push(lessee.slot());
        }
    }

    /// Answers one request; `false` if the other side has hung up.
    fn answer(&mut self) -> io::Result<bool> {
        let Some(received) = sender::receive(self.socket.as_fd())? else {
            return Ok(false);
        };
        let (own, is_strange) = self.sort_beside(received.beside)?;
        let no_message = || io::Error::from(io::ErrorKind::InvalidData);
        let sender = received.sender.ok_or_else(no_message)?;
        let request = received.request.ok_or_else(no_message)?;
        let kind = Kind::of(request.kind).ok_or_else(no_message)?;
        let is_answered = !matches!(kind, Kind::Ring | Kind::LetGo);
        if is_answered && sender::is_unread(self.socket.as_fd()) {
            // Each answer may have many descriptors beside it, which count as nobody's until they are taken.
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let outcome = match kind {
            Kind::Ring => {
                // Who asks for nothing gets no answer, not even that it failed.
                let _ = self.fold(request.file, Trust::AllButNewest);
                return Ok(true);
            }
            Kind::LetGo => {
                self.detach_keeping_memory(request.file);
                self.describe();
                return Ok(true);
            }
            Kind::Hello => self.welcome(request.first),
            Kind::Attach => own
                .ok_or(match is_strange {
                    true => Refusal::NotOurs,
                    false => Refusal::Protocol,
                })
                .and_then(|descriptor| self.attach(descriptor, &request, sender)),
            Kind::Segments => self.segments(Row::of(&request), request.file == 1, sender),
            Kind::Map => self.map(&request),
            // Who asks waits for the answer: all that he wrote is durable.
            Kind::Fold => self.fold(request.file, Trust::All),
            Kind::Detach => self.detach(request.file),
            Kind::Outcome => self.outcome(&request),
            Kind::Mapping => self.mapping(request.file),
        };
        let (reply, beside) = outcome.unwrap_or_else(|refusal| {
            self.counts().refused(refusal);
            (Reply::refused(refusal), Vec::new())
        });
        if matches!(
            kind,
            Kind::Attach | Kind::Detach | Kind::Segments | Kind::Outcome | Kind::Mapping
        ) {
            self.describe();
        }
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(AsFd::as_fd).collect();
        transport::send(self.socket.as_fd(), &reply, &beside, SendFlags::DONTWAIT)?;
        let prospect = Prospect::of(&request);
        match kind {
            Kind::Attach if prospect.writes_little => {
                self.journal_answered(reply.refusal == 0, prospect.processor);
            }
            Kind::Hello | Kind::Attach | Kind::Segments | Kind::Map => {
                self.expecting.next_question();
            }
            _ => {}
        }
        Ok(true)
    }

    /// Whether pages of the file found no room in the pool: only the server can serve them.
    fn has_unsaved_pages(&self, inode: u64) -> bool {
        self.service.shared.unsaved.has(inode)
    }

    fn counts(&self) -> &Counts {
        &self.service.shared.direct.counts
    }

    /// Keeps what users are shown up to date.
    fn describe(&self) {
        let mut holdings = Holdings {
            segments: self.segments.len(),
            ..Holdings::default()
        };
        for held in self.attached.values() {
            match held {
                Held::Reading(reader, ..) => {
                    holdings.read.push(reader.inode);
                    if reader.mappers.slot_of(&self.process).is_some() {
                        holdings.mapped.push(reader.inode);
                    }
                }
                Held::Leased(lessee, ..) if lessee.has_ended() => {}
                Held::Leased(lessee, ..) => holdings.leased.push(lessee.inode),
            }
        }
        *self.profile.holdings.lock() = holdings;
    }

    fn welcome(&mut self, version: u64) -> Answer {
        if version != u64::from(VERSION) {
            return Err(Refusal::Protocol);
        }
        let epoch_file = self.service.users.epoch_file().map_err(failed)?;
        let file = self.process_file.take().ok_or(Refusal::Protocol)?;
        let file = self.service.open_for(&self.process.user, file);
        let file = file.map_err(failed)?;
        let geometry = self.service.files().store().geometry();
        let welcome = Welcome {
            version: u64::from(VERSION),
            first_segment_at: geometry.first_block().offset().get(),
            segment_bytes: geometry.segment_bytes(),
            segments: u64::from(geometry.segments),
            is_dax: u64::from(self.service.files().store().class() == DurabilityClass::Dax),
            is_in_place: u64::from(self.service.is_in_place),
            epoch: self.service.users.epoch(),
        };
        Ok((welcome.reply(), vec![file.into(), epoch_file.into()]))
    }

    fn map(&mut self, request: &Request) -> Answer {
        let held = self.attached.get(&request.file).ok_or(Refusal::Ended)?;
        let (Held::Reading(_, node, domain) | Held::Leased(_, node, domain)) = held;
        // A chunk costs some microseconds; nobody needs more of them at once.
        let count = request.second.min(CHUNKS_AT_ONCE * MAP_CHUNK);
        held.memory()
            .fill(self.service.files(), node, *domain, (request.first, count))
            .map_err(refused)?;
        Ok((Reply::of(&[]), Vec::new()))
    }

    fn fold(&mut self, file: u32, trust: Trust) -> Answer {
        let Some(Held::Leased(_, node, ..)) = self.attached.get(&file) else {
            return Err(Refusal::Ended);
        };
        let folded = self.service.files().fold_lease_trusting(node, trust);
        match folded.map_err(refused)? {
            Some(_) => Ok((Reply::of(&[]), Vec::new())),
            None => Err(Refusal::Ended),
        }
    }

    fn detach(&mut self, file: u32) -> Answer {
        let held = self.attached.remove(&file).ok_or(Refusal::Ended)?;
        self.let_go(held);
        Ok((Reply::of(&[]), Vec::new()))
    }

    /// The same, and keeps the memory of a lease for the next one: a process that does not wait for an answer makes many of them.
    fn detach_keeping_memory(&mut self, file: u32) {
        let Some(held) = self.attached.remove(&file) else {
            return;
        };
        let lessee = match &held {
            Held::Leased(lessee, ..) => Some(Arc::clone(lessee)),
            Held::Reading(..) => None,
        };
        self.let_go(held);
        let memory = lessee.and_then(Lessee::into_memory);
        self.left_memory = memory.map(|memory| (file, memory));
    }

    /// The memory of an attachment that the process has let go, if it can have that again. That it has, it may say by this alone.
    fn take_left(&mut self, file: u32) -> Option<FileMemory> {
        self.detach_keeping_memory(file);
        let left = self.left_memory.take_if(|left| left.0 == file);
        left.map(|(_, memory)| memory)
    }

    fn outcome(&mut self, request: &Request) -> Answer {
        let Some(Held::Leased(lessee, ..)) = self.attached.get(&request.file) else {
            return Err(Refusal::Ended);
        };
        let counts = lessee.counts(request.first);
        self.detach(request.file)?;
        Ok((Reply::of(&[u64::from(counts)]), Vec::new()))
    }

    fn detach_all(&mut self) {
        while let Some((_, held)) = self.attached.pop_first() {
            self.let_go(held);
        }
    }

    /// Ends an attachment, however far it has come.
    fn let_go(&mut self, held: Held) {
        if let Held::Reading(reader, ..) = &held {
            self.give_up_mappings(reader);
        }
        let files = self.service.files();
        match held {
            Held::Reading(reader, node, _) => {
                if reader.leave() {
                    reader.end();
                    // What the kernel has read ends it, and not that: the file may still change while somebody sees its blocks.
                    files.end_watch(&node, &*reader);
                }
            }
            Held::Leased(lessee, node, _) => {
                lessee.give_up();
                if !lessee.has_ended()
                    && let Err(error) = files.drop_lease(node)
                {
                    lessee.log_unfolded(&error);
                }
                self.still_busy.push(lessee);
                self.look_at_writes();
            }
        }
    }
}

impl Held {
    fn memory(&self) -> &FileMemory {
        match self {
            Held::Reading(reader, _, _) => &reader.memory,
            Held::Leased(lessee, ..) => &lessee.memory,
        }
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> Refusal {
    tracing::warn!(%error, "direct access failed; the process uses the kernel");
    Refusal::Failed
}

fn refused(error: FsError) -> Refusal {
    match error {
        FsError::NotPermitted(_) | FsError::ReadOnly => Refusal::Busy,
        FsError::NoSpace | FsError::QuotaExceeded(_) => Refusal::NoRoom,
        FsError::InvalidArgument(_) | FsError::IsADirectory | FsError::NotFound => {
            Refusal::Unsuitable
        }
        error => failed(error),
    }
}
