//! Requests of a kernel that is a socket: every message, also those that no kernel sends.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InHeader, OutHeader};
use crate::*;

const MOST: usize = 1 << 17;

/// The other end of a connection.
struct Kernel {
    socket: OwnedFd,
    server: JoinHandle<io::Result<()>>,
}

fn message(opcode: u32, inode: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode,
        unique: u64::from(opcode) * 2,
        nodeid: inode,
        uid: 11,
        gid: 12,
        pid: 13,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

impl Kernel {
    /// Begins a connection: the answer to INIT, and the rest if there is one.
    fn init<F: Filesystem>(files: F, version: [u32; 2]) -> (OutHeader, Vec<u8>, Kernel) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).expect("sockets");
        let server = std::thread::spawn(move || {
            let options = Options {
                threads: 1,
                over_io_uring: false,
                stations: 1,
            };
            Session::new(files, theirs, options)?.run(|| ())
        });
        let kernel = Kernel { socket, server };
        let init = abi::InitIn {
            major: version[0],
            minor: version[1],
            flags: u32::MAX,
            flags2: u32::MAX,
            ..abi::InitIn::default()
        };
        let (header, body) = kernel.ask(26, 0, init.as_bytes());
        (header, body, kernel)
    }

    fn new<F: Filesystem>(files: F) -> Kernel {
        let (header, _, kernel) = Kernel::init(files, [7, 45]);
        assert_eq!(header.error, 0);
        kernel
    }

    fn send(&self, bytes: &[u8]) {
        rustix::net::send(&self.socket, bytes, SendFlags::empty()).expect("the server listens");
    }

    fn answer(&self) -> (OutHeader, Vec<u8>) {
        let mut answer = vec![0; MOST];
        let received = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty());
        let (bytes, _) = received.expect("an answer");
        let (header, body) = OutHeader::read_from_prefix(&answer[..bytes]).expect("a header");
        assert_eq!(header.len as usize, bytes);
        (header, body.to_vec())
    }

    fn ask(&self, opcode: u32, inode: u64, body: &[u8]) -> (OutHeader, Vec<u8>) {
        self.send(&message(opcode, inode, body));
        let (header, body) = self.answer();
        assert_eq!(header.unique, u64::from(opcode) * 2);
        (header, body)
    }

    fn end(self) -> io::Result<()> {
        drop(self.socket);
        self.server.join().expect("no panic")
    }
}

/// Writes down what it is asked.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, line: String) {
        self.0.lock().push(line);
    }

    fn last(&self) -> String {
        self.0.lock().last().cloned().unwrap_or_default()
    }
}

fn attributes(inode: INodeNo) -> FileAttr {
    let at = Time {
        seconds: -2,
        nanoseconds: 5,
    };
    FileAttr {
        inode,
        size_bytes: 3,
        sectors: 8,
        accessed: at,
        modified: at,
        changed: at,
        mode: 0o100_644,
        links: 1,
        uid: 0,
        gid: 0,
        device: 0,
        block_bytes: 4096,
    }
}

impl Filesystem for Notes {
    fn init(&mut self, config: &mut Config) -> io::Result<()> {
        assert!(config.want(InitFlags::PARALLEL_DIROPS));
        Ok(())
    }

    fn refusal(&self, opcode: Opcode) -> Errno {
        match opcode {
            Opcode::Mkdir => Errno::EPERM,
            _ => Errno::ENOSYS,
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        self.note(format!("lookup {parent:?} {name:?} {uid} {gid} {pid}"));
        // An answer that nobody gives.
        drop(reply);
    }

    fn forget(&self, inode: INodeNo, references: u64) {
        self.note(format!("forget {} {references}", inode.0));
    }

    fn setattr(&self, _: &Request, inode: INodeNo, changes: &Changes, reply: ReplyAttr) {
        self.note(format!("{changes:?}"));
        reply.attr(&std::time::Duration::from_millis(1500), &attributes(inode));
    }

    fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.note(format!("rename {from:?} {to:?} {}", flags.bits()));
        reply.ok();
    }

    fn write(&self, _: &Request, at: At, write: Write<'_>, reply: ReplyWrite) {
        let (offset, data, direct) = (at.offset, write.data.len(), write.is_direct);
        self.note(format!("write {offset} {data} {direct}"));
        reply.written(write.data.len() as u32);
    }

    fn read(&self, _: &Request, _: At, read: Read, reply: ReplyData) {
        reply.fill::<Vec<u8>>(read.bytes as usize, |room| {
            room.fill(7);
            Ok(Filled::Room(room.len() - 1))
        });
    }

    fn readdir(&self, _: At, mut reply: ReplyDirectory) {
        let mut count = 0;
        while !reply.add(INodeNo(9), count + 1, FileType::Symlink, OsStr::new("name")) {
            count += 1;
        }
        self.note(format!("{count} names"));
        reply.ok();
    }

    fn setxattr(&self, _: INodeNo, name: &OsStr, value: &[u8], flags: i32, reply: ReplyEmpty) {
        self.note(format!("setxattr {name:?} {value:?} {flags}"));
        reply.ok();
    }
}

#[test]
fn version_and_features_are_agreed_on() {
    let (header, body, kernel) = Kernel::init(Notes::default(), [7, 45]);
    let (out, _) = abi::InitOut::read_from_prefix(&body).expect("an answer");
    assert_eq!((header.error, out.major, out.max_pages), (0, 7, 256));
    let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
    let flags = InitFlags::from_bits_retain(flags);
    assert!(flags.contains(InitFlags::PARALLEL_DIROPS | InitFlags::MAX_PAGES));
    assert!(!flags.intersects(InitFlags::OVER_IO_URING | InitFlags::PASSTHROUGH));
    kernel.end().expect("a good end");

    let (_, body, kernel) = Kernel::init(Notes::default(), [8, 0]);
    assert_eq!(
        body,
        [7_u32, abi::MINOR].as_bytes(),
        "our version, then it asks again"
    );
    let again = abi::InitIn {
        major: 7,
        minor: 45,
        flags: u32::MAX,
        ..abi::InitIn::default()
    };
    assert_eq!(kernel.ask(26, 0, again.as_bytes()).0.error, 0);
    kernel.end().expect("a good end");

    let (header, _, kernel) = Kernel::init(Notes::default(), [7, 12]);
    assert_eq!(header.error, -libc::EPROTO, "too old");
    assert!(kernel.end().is_err());
}

#[test]
fn every_request_without_a_method_is_refused() {
    struct Nothing;
    impl Filesystem for Nothing {
        fn init(&mut self, _: &mut Config) -> io::Result<()> {
            Ok(())
        }
    }
    let kernel = Kernel::new(Nothing);
    // Beyond those that are known, too.
    for number in (1..60).filter(|number| *number != 26) {
        let opcode = Opcode::from_number(number);
        if opcode.is_some_and(Opcode::is_unanswered) {
            kernel.send(&message(number, 1, &[0; 64]));
            continue;
        }
        let expected = match opcode {
            Some(Opcode::Release | Opcode::Releasedir | Opcode::Destroy | Opcode::Statfs) => 0,
            _ => -libc::ENOSYS,
        };
        let (header, _) = kernel.ask(number, 1, &[0; 128]);
        assert_eq!(header.error, expected, "{number} {opcode:?}");
    }
    kernel.end().expect("a good end");
}

#[test]
fn requests_that_are_cut_short_fail_and_harm_nobody() {
    let kernel = Kernel::new(Notes::default());
    for number in (1..60).filter(|number| *number != 26) {
        if Opcode::from_number(number).is_some_and(Opcode::is_unanswered) {
            kernel.send(&message(number, 1, &[0xff; 9]));
            continue;
        }
        for bytes in [0, 1, 7] {
            // No structure is that short, and no name has an end.
            let (header, _) = kernel.ask(number, 1, &[0xff; 8][..bytes]);
            assert!(header.error <= 0, "{number}");
        }
    }
    let write = abi::WriteIn {
        size: 1 << 30,
        ..abi::WriteIn::default()
    };
    let cut = kernel.ask(16, 1, write.as_bytes()).0;
    assert_eq!(cut.error, -libc::EIO, "longer than the message");
    let batch = abi::BatchForgetIn {
        count: u32::MAX,
        dummy: 0,
    };
    kernel.send(&message(42, 1, batch.as_bytes()));
    kernel.send(b"no header");
    let mut wrong = message(3, 1, &[0; 16]);
    wrong[0] = 0xff;
    kernel.send(&wrong);
    assert_eq!(
        kernel.ask(9, 1, b"\x01\0\0\0\0\0\0\0n\0").0.error,
        -libc::EPERM
    );
    kernel.end().expect("a good end");
}

#[test]
fn requests_reach_their_methods_whole() {
    let notes = Notes::default();
    let kernel = Kernel::new(notes.clone());
    let (header, _) = kernel.ask(1, 5, b"na me\0");
    assert_eq!(header.error, -libc::EIO, "an answer that is dropped");
    assert_eq!(notes.last(), "lookup INodeNo(5) \"na me\" 11 12 13");

    let setattr = abi::SetattrIn {
        valid: abi::valid::SIZE | abi::valid::ATIME | abi::valid::MTIME | abi::valid::MTIME_NOW,
        size: 4,
        atime: -2,
        atimensec: 750_000_000,
        ..abi::SetattrIn::default()
    };
    let (_, body) = kernel.ask(4, 5, setattr.as_bytes());
    let (attr, _) = abi::AttrOut::read_from_prefix(&body).expect("attributes");
    assert_eq!((attr.attr_valid, attr.attr_valid_nsec), (1, 500_000_000));
    assert_eq!(
        (attr.attr.ino, attr.attr.atime, attr.attr.atimensec),
        (5, -2, 5)
    );
    let expected = Changes {
        size_bytes: Some(4),
        accessed: Some(TimeOrNow::At(Time {
            seconds: -2,
            nanoseconds: 750_000_000,
        })),
        modified: Some(TimeOrNow::Now),
        ..Changes::default()
    };
    assert_eq!(notes.last(), format!("{expected:?}"));

    kernel.ask(12, 5, b"\x06\0\0\0\0\0\0\0a\0b\0");
    let to = |inode: u64| format!("(INodeNo(5), \"a\") (INodeNo({inode}), \"b\")");
    assert_eq!(notes.last(), format!("rename {} 0", to(6)));
    let rename = [7_u64, 2];
    kernel.ask(45, 5, &[rename.as_bytes(), b"a\0b\0"].concat());
    assert_eq!(notes.last(), format!("rename {} 2", to(7)));

    let write = abi::WriteIn {
        offset: 1 << 40,
        size: 3,
        write_flags: abi::WRITE_LOCKOWNER,
        ..abi::WriteIn::default()
    };
    let (_, body) = kernel.ask(16, 5, &[write.as_bytes(), b"abc"].concat());
    assert_eq!(body[..4], 3_u32.to_ne_bytes());
    assert_eq!(notes.last(), format!("write {} 3 true", 1_u64 << 40));

    let set = abi::SetxattrIn { size: 2, flags: 1 };
    kernel.ask(21, 5, &[set.as_bytes(), b"user.x\0va"].concat());
    assert_eq!(notes.last(), "setxattr \"user.x\" [118, 97] 1");

    let read = abi::ReadIn {
        size: 100,
        ..abi::ReadIn::default()
    };
    assert_eq!(kernel.ask(15, 5, read.as_bytes()).1, [7; 99]);
    kernel.end().expect("a good end");
}

#[test]
fn references_are_given_back_one_by_one_and_in_a_batch() {
    let notes = Notes::default();
    let kernel = Kernel::new(notes.clone());
    kernel.send(&message(2, 5, &3_u64.to_ne_bytes()));
    let batch = abi::BatchForgetIn { count: 2, dummy: 0 };
    let two = [6_u64, 1, 7, 2];
    kernel.send(&message(
        42,
        0,
        &[batch.as_bytes(), two.as_bytes()].concat(),
    ));
    // Requests are taken in order, so these are done before this one is answered.
    kernel.ask(9, 1, b"\x01\0\0\0\0\0\0\0n\0");
    assert_eq!(*notes.0.lock(), ["forget 5 3", "forget 6 1", "forget 7 2"]);
    kernel.end().expect("a good end");
}

#[test]
fn listings_are_as_long_as_the_caller_has_room() {
    let notes = Notes::default();
    let kernel = Kernel::new(notes.clone());
    for (room, names) in [(0, 0), (31, 0), (32, 1), (320, 10)] {
        let read = abi::ReadIn {
            size: room,
            ..abi::ReadIn::default()
        };
        let (_, body) = kernel.ask(28, 1, read.as_bytes());
        assert_eq!(body.len(), names * 32);
        assert_eq!(notes.last(), format!("{names} names"));
        if let Ok((first, _)) = abi::Dirent::read_from_prefix(&body) {
            assert_eq!(
                (first.ino, first.off, first.namelen, first.kind),
                (9, 1, 4, 10)
            );
        }
    }
    kernel.end().expect("a good end");
}
