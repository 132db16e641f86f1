//! A process that asks for segments which it does not get takes nothing from anybody by that.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use crate::common::{Mounted, Place};
use direct::protocol::{Kind, Refusal, Reply, Request, Row, VERSION, Welcome};
use direct::transport;
use fs::MountOptions;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

fn ask(socket: &OwnedFd, kind: Kind, first: u64, second: u64) -> Reply {
    let request = Request {
        kind: kind as u32,
        file: 0,
        first,
        second,
    };
    transport::send(socket.as_fd(), &request, &[], SendFlags::empty()).expect("sent");
    let answer = transport::receive::<Reply>(socket.as_fd()).expect("an answer");
    answer.expect("it does not hang up").0
}

fn connect(file: &File) -> OwnedFd {
    let name = direct::server_of(file.as_fd()).expect("a server").name;
    let address = SocketAddrUnix::new_abstract_name(&name).expect("an address");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::connect(&socket, &address).expect("connected");
    socket
}

#[test]
fn who_is_refused_segments_takes_no_room_from_others() {
    let place = Place::new();
    place.format();
    let mounting = place.mounting();
    let mounted = Mounted::as_wanted(place, MountOptions::default(), &mounting);
    for user in 2000..2020 {
        let path = mounted.path(&user.to_string());
        let mut file = File::create(&path).expect("create");
        std::os::unix::fs::chown(&path, Some(user), None).expect("chown");
        file.write_all(&[1; 16384]).expect("write");
    }
    let socket = connect(&File::open(mounted.path("2000")).expect("open"));
    let welcome = Welcome::of(&ask(&socket, Kind::Hello, u64::from(VERSION), 0));
    assert!(welcome.segments > 20);
    for first in (0..welcome.segments).step_by(32) {
        let row = Row {
            first,
            distance: 1,
            bits: Row::ALL,
        };
        let answer = ask(&socket, Kind::Segments, row.first, row.word());
        assert_eq!(answer.refusal, Refusal::NotYours as u32);
    }
    let pool = mounted.place.pool();
    for segment in 0..welcome.segments as u32 {
        let path = pool.join(txn::pool::segment_file(segment));
        let mode = std::fs::metadata(path).expect("a segment").permissions();
        assert_eq!(mode.mode() & 0o1000, 0, "segment {segment} counts as given");
    }
    let space = rustix::fs::statvfs(mounted.path(""));
    let available = space.expect("statvfs").f_bavail;
    let path = mounted.path("others");
    let mut file = File::create(&path).expect("create");
    std::os::unix::fs::chown(&path, Some(5000), None).expect("chown");
    let mut blocks = 0;
    while file.write_all(&[2; 4096]).is_ok() {
        blocks += 1;
    }
    assert!(blocks > available / 10 * 9, "{blocks} of {available}");
}
