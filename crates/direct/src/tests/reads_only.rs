//! A mount whose files are only read directly, of class `log`.

use super::files::{bytes, tempfile};
use super::server::{INODE, Server};
use crate::connection::Connection;
use crate::discover::Server as Found;
use crate::price::Rule;
use crate::protocol::Kind;
use pmem::BLOCK_BYTES as BLOCK;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

#[test]
fn no_lease_is_asked_for_and_reads_are_direct() {
    let content = bytes(5 * BLOCK, 1);
    let server = Server::start(&content);
    let found = Found {
        reads_only: true,
        ..Found::at(&server.name)
    };
    let file = Connection::new(found, None, Rule::FIRST)
        .file(INODE)
        .expect("a file");
    let descriptor = tempfile();
    let descriptor = descriptor.as_fd();
    let write = || file.write_at(descriptor, &[IoSlice::new(b"data")], 0);
    let read = || {
        let mut into = vec![0; BLOCK];
        let slices = &mut [IoSliceMut::new(&mut into)];
        let read = file.read_at(descriptor, slices, BLOCK as u64);
        read.map(|length| into[..length].to_vec())
    };
    for _ in 0..100 {
        assert_eq!(write(), None);
        assert_eq!(file.append(descriptor, &[IoSlice::new(b"data")]), None);
        assert_eq!(read(), None, "the next write would end it");
    }
    assert_eq!(server.asked(Kind::Attach), 0);
    for round in 1..=3 {
        let reads: Vec<_> = (0..200).filter_map(|_| read()).collect();
        assert!(reads.len() > 100, "{} reads", reads.len());
        assert!(
            reads
                .iter()
                .all(|block| block[..] == content[BLOCK..2 * BLOCK])
        );
        assert_eq!(server.asked(Kind::Attach), round);
        assert_eq!(write(), None);
        assert_eq!(server.let_go(round), round, "the write would end it");
    }
}
