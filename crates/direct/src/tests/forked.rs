//! A child process has nothing of what its parent had, and begins by itself.

use super::server::{INODE, Server};
use crate::client::Client;
use crate::discover::Server as Found;
use crate::discover::regular_file;
use crate::file::File;
use crate::price::OPERATIONS_BEFORE;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

fn write(file: &File, descriptor: BorrowedFd<'_>, data: &[u8]) -> Option<usize> {
    file.write_at(descriptor, &[IoSlice::new(data)], 0)
}

fn read(file: &File, descriptor: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    file.read_at(descriptor, parts, 0)?;
    Some(byte[0])
}

/// What a child finds; a number that names what is wrong.
fn child(
    client: &Client,
    file: Arc<File>,
    look: impl Fn() -> Option<Arc<File>>,
    socket: i32,
) -> i32 {
    client.forget();
    let standard = std::fs::File::open("/dev/null").expect("open");
    let descriptor = standard.as_fd();
    if file.size_bytes().is_some() || file.is_durable() || !file.is_lost() {
        return 1;
    }
    if write(&file, descriptor, b"b").is_some() || read(&file, descriptor).is_some() {
        return 2;
    }
    // SAFETY: asks about a number that may be closed.
    if unsafe { libc::fcntl(socket, libc::F_GETFD) } != -1 {
        return 3;
    }
    file.close();
    drop(file);
    let Some(own) = look() else { return 4 };
    let is_read = (0..OPERATIONS_BEFORE).any(|_| read(&own, descriptor) == Some(b'a'));
    if is_read { 0 } else { 5 }
}

#[test]
fn a_child_forgets_and_begins_by_itself() {
    let server = Server::start(b"before");
    let client = Client::default();
    let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("file");
    let (device, _) = regular_file(memory.as_fd()).expect("regular");
    let look = || client.look_by(device, INODE, || Some(Found::at(&server.name)));
    let file = look().expect("a file");
    assert!(Arc::ptr_eq(&file, &look().expect("a file")), "one view");
    assert!((0..OPERATIONS_BEFORE).any(|_| write(&file, memory.as_fd(), b"a").is_some()));
    let socket = file.connection.line().trace().0;
    // SAFETY: the child calls only what a child of a program with threads may be able to, and ends without running anything else.
    match unsafe { libc::fork() } {
        0 => {
            let outcome = child(&client, Arc::clone(&file), look, socket);
            // SAFETY: ends the process.
            unsafe { libc::_exit(outcome) }
        }
        id => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
            assert_eq!(status, 0, "{status:#x}");
        }
    }
    assert!(!file.is_lost());
}

#[test]
fn what_is_not_ours_is_asked_once() {
    let client = Client::default();
    let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("file");
    assert!(client.look(memory.as_fd()).is_none());
    let (device, inode) = regular_file(memory.as_fd()).expect("regular");
    let look = client.look_by(device, inode, || panic!("asked again"));
    assert!(look.is_none());
}

#[test]
fn a_server_that_does_not_answer_is_not_asked_again_at_once() {
    let client = Client::default();
    let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("file");
    let (device, inode) = regular_file(memory.as_fd()).expect("regular");
    let nobody = || Some(Found::at(b"nobody listens here"));
    let file = client.look_by(device, inode, nobody).expect("a file");
    for _ in 0..2 * OPERATIONS_BEFORE {
        assert_eq!(write(&file, memory.as_fd(), b"a"), None);
    }
    assert!(!file.is_lost(), "it may come");
    let look = client.look_by(device, inode, || panic!("asked again"));
    assert!(Arc::ptr_eq(&file, &look.expect("the file")));
}
