//! A FUSE mount of another user that says it is Perdure. A process that is ready for direct access
//! does not talk to that user's server, and maps no memory that can shrink: the kernel serves it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use direct::layout::PROCESS_BYTES;
use direct::protocol::{DISCOVER, Discovery, Kind, MAGIC, Request as Question, VERSION, Welcome};
use direct::{Client, transport};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, IoctlFlags,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyWrite,
    Request, SessionACL, WriteFlags,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use zerocopy::IntoBytes;

use crate::common::direct::Own;

const OTHER: u32 = 12_345;
const FILE: INodeNo = INodeNo(2);
const LIFETIME: Duration = Duration::from_secs(60);
const SIZE: u64 = 1 << 20;

/// A file system with one file, whose `ioctl` names a socket.
struct Poser(Discovery);

fn attributes(number: INodeNo) -> FileAttr {
    let (kind, perm, size) = match number {
        INodeNo::ROOT => (FileType::Directory, 0o755, 0),
        _ => (FileType::RegularFile, 0o666, SIZE),
    };
    FileAttr {
        ino: number,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Poser {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "file" {
            true => reply.entry(&LIFETIME, &attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply.attr(&LIFETIME, &attributes(number));
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&vec![7; size as usize]);
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        match command == DISCOVER {
            true => reply.ioctl(0, self.0.as_bytes()),
            false => reply.error(Errno::ENOTTY),
        }
    }
}

/// Welcomes each process, gives it memory, and takes that away again at once.
fn serve(socket: &OwnedFd, welcomed: &AtomicU32) -> rustix::io::Result<()> {
    loop {
        let connection = rustix::net::accept(socket)?;
        while let Ok(Some((question, _))) = transport::receive::<Question>(connection.as_fd()) {
            if question.kind != Kind::Hello as u32 {
                break;
            }
            let memory = || memfd_create("perdure", MemfdFlags::CLOEXEC);
            let files = [memory()?, memory()?];
            for file in &files {
                ftruncate(file, PROCESS_BYTES as u64)?;
            }
            let welcome = Welcome {
                version: u64::from(VERSION),
                first_segment_at: 1 << 20,
                segment_bytes: 1 << 20,
                segments: 2,
                is_dax: 0,
                is_in_place: 0,
                epoch: 0,
            };
            let beside = [files[0].as_fd(), files[1].as_fd()];
            let (to, flags) = (connection.as_fd(), SendFlags::empty());
            let sent = transport::send(to, &welcome.reply(), &beside, flags);
            welcomed.fetch_add(u32::from(sent.is_ok()), Ordering::SeqCst);
            // The process maps both meanwhile.
            std::thread::sleep(Duration::from_millis(20));
            for file in &files {
                ftruncate(file, 0)?;
            }
        }
    }
}

/// Starts a server of this user; the kernel notes the user when the server begins to listen.
fn listen_as(user: u32, name: &str, welcomed: Arc<AtomicU32>) -> JoinHandle<()> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &address).expect("bound");
        rustix::net::listen(&socket, 4).expect("listens");
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(3))).expect("set");
        ready.send(()).expect("waited for");
        // Ends when no process has come for so long.
        let _ = serve(&socket, &welcomed);
    });
    is_ready.recv().expect("a server");
    server
}

#[test]
fn a_mount_that_poses_as_ours_does_no_harm() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root, to be two users");
    }
    // A server of this very user gets an answer, but memory that can shrink is not mapped.
    for (user, is_spoken_to) in [(OTHER, false), (0, true)] {
        let welcomed = Arc::new(AtomicU32::new(0));
        let name = format!("perdure-poser-{user}-{}", std::process::id());
        let server = listen_as(user, &name, Arc::clone(&welcomed));
        let mut socket = [0; 48];
        socket[..name.len()].copy_from_slice(name.as_bytes());
        let discovery = Discovery {
            magic: MAGIC,
            version: VERSION,
            reads_only: 0,
            socket,
        };
        let place = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let mount = fuser::spawn_mount(Poser(discovery), place.path(), &config).expect("mounted");
        let client = Client::default();
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(place.path().join("file"))
            .expect("opened");
        let direct = client.look(file.as_fd()).expect("it says that it is ours");
        let own = Own { file, direct };
        assert_eq!(
            own.read(40) + own.write(40),
            0,
            "user {user}: by the kernel"
        );
        // By now the server has shortened its memory: a process that has it mapped ends here.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(
            own.read(40) + own.write(40),
            0,
            "user {user}: by the kernel"
        );
        let was_spoken_to = welcomed.load(Ordering::SeqCst) > 0;
        assert_eq!(was_spoken_to, is_spoken_to, "user {user}");
        drop((own, client, mount));
        server.join().expect("no panic");
    }
}
