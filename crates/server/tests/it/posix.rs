//! Operations on names and files through a real mount.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::common::{Mounted, run_as};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, XattrFlags};

fn errno<T>(result: io::Result<T>) -> i32 {
    result
        .err()
        .and_then(|error| error.raw_os_error())
        .expect("an error of the system")
}

#[test]
fn a_file_lives_through_a_remount() {
    let mounted = Mounted::new();
    let content: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    fs::create_dir_all(mounted.path("a/b/c")).expect("directories");
    fs::write(mounted.path("a/b/c/file"), &content).expect("write");
    fs::set_permissions(
        mounted.path("a/b/c/file"),
        fs::Permissions::from_mode(0o640),
    )
    .expect("chmod");
    let mounted = mounted.remount();
    assert_eq!(fs::read(mounted.path("a/b/c/file")).expect("read"), content);
    let metadata = fs::metadata(mounted.path("a/b/c/file")).expect("stat");
    assert_eq!(
        (metadata.mode(), metadata.len(), metadata.nlink()),
        (0o100_640, content.len() as u64, 1)
    );
}

#[test]
fn every_kind_of_inode() {
    let mounted = Mounted::new();
    let at = |name| mounted.path(name);
    symlink("some/where", at("symlink")).expect("symlink");
    assert_eq!(
        fs::read_link(at("symlink")).expect("readlink"),
        Path::new("some/where")
    );
    let make = |name, kind, device| rustix::fs::mknodat(CWD, at(name), kind, 0o600.into(), device);
    make("fifo", rustix::fs::FileType::Fifo, 0).expect("mkfifo");
    make("socket", rustix::fs::FileType::Socket, 0).expect("socket");
    make(
        "device",
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::makedev(1, 3),
    )
    .expect("mknod");
    assert!(
        fs::metadata(at("fifo"))
            .expect("stat")
            .file_type()
            .is_fifo()
    );
    assert!(
        fs::metadata(at("socket"))
            .expect("stat")
            .file_type()
            .is_socket()
    );
    let device = fs::metadata(at("device")).expect("stat");
    assert_eq!(device.rdev(), rustix::fs::makedev(1, 3));
    // The node is the null device, and the mount honours it.
    fs::write(at("device"), b"gone").expect("write to the device");
}

/// Waits until the clock of the file system has moved. A busy machine lets it stand still for more
/// than its 4 ms.
fn await_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let now = || {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        (time.tv_sec, time.tv_nsec)
    };
    let before = now();
    while now() == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn links_share_attributes_at_once() {
    let mounted = Mounted::new();
    let (first, second) = (mounted.path("first"), mounted.path("second"));
    fs::write(&first, b"shared").expect("write");
    fs::hard_link(&first, &second).expect("link");
    assert_eq!(fs::metadata(&first).expect("stat").nlink(), 2);
    let before = fs::metadata(&second).expect("stat");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o400)).expect("chmod");
    assert_eq!(fs::metadata(&second).expect("stat").mode() & 0o777, 0o400);
    await_tick();
    fs::rename(&first, mounted.path("third")).expect("rename");
    let after = fs::metadata(&second).expect("stat");
    assert!(
        (after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()),
        "rename changes ctime"
    );
    await_tick();
    fs::remove_file(mounted.path("third")).expect("unlink");
    let last = fs::metadata(&second).expect("stat");
    assert_eq!(last.nlink(), 1);
    assert!(
        (last.ctime(), last.ctime_nsec()) > (after.ctime(), after.ctime_nsec()),
        "unlink changes ctime"
    );
    assert_eq!(fs::read(&second).expect("read"), b"shared");
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let mounted = Mounted::new();
    let path = mounted.path("unlinked");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("create");
    file.write_all(&[7; 100_000]).expect("write");
    fs::remove_file(&path).expect("unlink");
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    assert_eq!(file.metadata().expect("fstat").nlink(), 0);
    // Another file must not get its inode meanwhile.
    let other = File::create(&path).expect("create again");
    assert_ne!(
        other.metadata().expect("fstat").ino(),
        file.metadata().expect("fstat").ino()
    );
    file.write_all_at(&[8; 10], 50).expect("write");
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_end(&mut content).expect("read");
    assert_eq!((content.len(), content[49], content[50]), (100_000, 7, 8));
}

#[test]
fn space_of_unlinked_files_comes_back() {
    let mounted = Mounted::new();
    // Four times the pool's size altogether.
    for round in 0..32 {
        let path = mounted.path("large");
        fs::write(&path, vec![round; 16 << 20]).expect("write");
        fs::remove_file(&path).expect("unlink");
    }
}

#[test]
fn rename_with_all_flags() {
    let mounted = Mounted::new();
    let (one, two, directory) = (
        mounted.path("one"),
        mounted.path("two"),
        mounted.path("directory"),
    );
    fs::write(&one, b"1").expect("write");
    fs::write(&two, b"2").expect("write");
    fs::create_dir(&directory).expect("mkdir");
    let rename =
        |from: &Path, to: &Path, flags| rustix::fs::renameat_with(CWD, from, CWD, to, flags);

    assert_eq!(
        rename(&one, &two, RenameFlags::NOREPLACE),
        Err(rustix::io::Errno::EXIST)
    );
    rename(&one, &two, RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!(
        (fs::read(&one).expect("read"), fs::read(&two).expect("read")),
        (b"2".to_vec(), b"1".to_vec())
    );
    rename(&one, &directory, RenameFlags::EXCHANGE).expect("exchange with a directory");
    assert!(fs::metadata(&one).expect("stat").is_dir());
    assert_eq!(fs::read(&directory).expect("read"), b"2");
    rename(&two, &mounted.path("moved"), RenameFlags::WHITEOUT).expect("leave a whiteout");
    let whiteout = fs::metadata(&two).expect("stat");
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);

    fs::create_dir_all(mounted.path("one/sub")).expect("mkdir");
    assert_eq!(
        errno(fs::rename(&one, mounted.path("one/sub/one"))),
        libc::EINVAL
    );
    fs::create_dir(mounted.path("full")).expect("mkdir");
    fs::write(mounted.path("full/file"), b"").expect("write");
    assert_eq!(
        errno(fs::rename(&one, mounted.path("full"))),
        libc::ENOTEMPTY
    );
    assert_eq!(errno(fs::rename(&one, &directory)), libc::ENOTDIR);
    // Parents' link counts follow a directory that moves.
    fs::rename(mounted.path("one/sub"), mounted.path("full/sub")).expect("move a directory");
    let links = |name| fs::metadata(mounted.path(name)).expect("stat").nlink();
    assert_eq!((links("one"), links("full")), (2, 3));
}

#[test]
fn listing_is_stable_while_names_come_and_go() {
    let mounted = Mounted::new();
    let directory = mounted.path("many");
    fs::create_dir(&directory).expect("mkdir");
    for index in 0..3000 {
        fs::write(directory.join(format!("stays-{index}")), b"").expect("write");
    }
    let mut seen = BTreeSet::new();
    let mut turn = 0;
    for entry in fs::read_dir(&directory).expect("opendir") {
        let name = entry
            .expect("readdir")
            .file_name()
            .into_string()
            .expect("a plain name");
        assert!(seen.insert(name.clone()), "{name} was listed twice");
        turn += 1;
        if turn % 10 == 0 {
            fs::write(directory.join(format!("comes-{turn}")), b"").expect("write");
            if let Ok(previous) = u32::try_from(turn - 10) {
                let _ = fs::remove_file(directory.join(format!("comes-{previous}")));
            }
        }
    }
    assert_eq!(
        seen.iter()
            .filter(|name| name.starts_with("stays-"))
            .count(),
        3000
    );
}

#[test]
fn a_listing_from_the_cache_sees_changes() {
    let mounted = Mounted::new();
    let list = || {
        let mut names: Vec<_> = fs::read_dir(mounted.place.mountpoint())
            .expect("opendir")
            .map(|entry| entry.expect("readdir").file_name())
            .collect();
        names.sort();
        names
    };
    for round in 0..20 {
        fs::write(mounted.path(&format!("file-{round:02}")), b"").expect("write");
        assert_eq!(list().len(), round + 1);
        assert_eq!(list().len(), round + 1, "the second time from the cache");
    }
    fs::remove_file(mounted.path("file-07")).expect("unlink");
    fs::rename(mounted.path("file-08"), mounted.path("renamed")).expect("rename");
    let names = list();
    assert_eq!(names.len(), 19);
    assert!(names.contains(&"renamed".into()) && !names.contains(&"file-08".into()));
}

#[test]
fn absent_names_are_seen_when_they_come() {
    let mounted = Mounted::new();
    let path = mounted.path("name");
    for _ in 0..3 {
        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
        fs::write(&path, b"").expect("write");
        assert!(path.exists());
        fs::remove_file(&path).expect("unlink");
    }
    fs::write(mounted.path("other"), b"").expect("write");
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    fs::rename(mounted.path("other"), &path).expect("rename");
    assert!(path.exists());
    assert_eq!(
        errno(File::create(mounted.path(&"n".repeat(256)))),
        libc::ENAMETOOLONG
    );
    File::create(mounted.path(&"n".repeat(255))).expect("the longest name");
}

#[test]
fn extended_attributes() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, b"").expect("write");
    let mut space = [0u8; 64];
    let mut get = |name: &str, bytes: usize| {
        rustix::fs::getxattr(&path, name, &mut space[..bytes])
            .map(|length| space[..length.min(bytes)].to_vec())
    };
    rustix::fs::setxattr(&path, "user.colour", b"blue", XattrFlags::CREATE).expect("create");
    let again = rustix::fs::setxattr(&path, "user.colour", b"red", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    let missing = rustix::fs::setxattr(&path, "user.shape", b"round", XattrFlags::REPLACE);
    assert_eq!(missing, Err(rustix::io::Errno::NODATA));
    rustix::fs::setxattr(&path, "trusted.secret", b"x", XattrFlags::empty()).expect("set");
    assert_eq!(get("user.colour", 64), Ok(b"blue".to_vec()));
    assert_eq!(get("user.colour", 3), Err(rustix::io::Errno::RANGE));
    assert_eq!(get("user.none", 64), Err(rustix::io::Errno::NODATA));
    let acl = rustix::fs::setxattr(
        &path,
        "system.posix_acl_access",
        b"\x02\0\0\0",
        XattrFlags::empty(),
    );
    assert!(acl.is_err(), "what is not enforced is not stored");

    let mut list = [0u8; 64];
    let length = rustix::fs::listxattr(&path, &mut list).expect("list");
    let names: BTreeSet<&[u8]> = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(
        names,
        BTreeSet::from([&b"user.colour"[..], b"trusted.secret"])
    );
    assert_eq!(
        rustix::fs::listxattr(&path, &mut [0u8; 4]),
        Err(rustix::io::Errno::RANGE)
    );
    rustix::fs::removexattr(&path, "user.colour").expect("remove");
    assert_eq!(get("user.colour", 64), Err(rustix::io::Errno::NODATA));
}

#[test]
fn times_are_kept_to_the_nanosecond_and_before_the_epoch() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, b"").expect("write");
    for (seconds, nanoseconds) in [
        (1_700_000_000, 123_456_789),
        (-2, 750_000_000),
        (-1, 0),
        (4_294_967_296, 1),
    ] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("utimensat");
        let metadata = fs::metadata(&path).expect("stat");
        assert_eq!(
            (metadata.mtime(), metadata.mtime_nsec()),
            (seconds, nanoseconds)
        );
        assert_eq!(
            (metadata.atime(), metadata.atime_nsec()),
            (seconds, nanoseconds)
        );
    }
}

#[test]
fn holes_and_allocation() {
    let mounted = Mounted::new();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("sparse"))
        .expect("create");
    file.write_all_at(&[1; 4096], 1 << 20).expect("write");
    let metadata = file.metadata().expect("fstat");
    assert!(metadata.len() == (1 << 20) + 4096 && metadata.blocks() < 100);
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    assert_eq!(
        seek(rustix::fs::SeekFrom::Hole(1 << 20)),
        Ok((1 << 20) + 4096)
    );
    assert_eq!(
        seek(rustix::fs::SeekFrom::Data(1 << 21)),
        Err(rustix::io::Errno::NXIO)
    );

    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 21).expect("reserve");
    let reserved = file.metadata().expect("fstat");
    assert!(reserved.len() == (1 << 20) + 4096 && reserved.blocks() * 512 >= 1 << 21);
    rustix::fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        (1 << 20) + 10,
        20,
    )
    .expect("punch");
    let mut around = [9; 40];
    file.read_exact_at(&mut around, 1 << 20).expect("read");
    assert_eq!(
        (around[9], around[10], around[29], around[30]),
        (1, 0, 0, 1)
    );
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 1 << 20, 4096).expect("zero");
    file.read_exact_at(&mut around, 1 << 20).expect("read");
    assert_eq!(around, [0; 40]);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 22).expect("allocate");
    assert_eq!(file.metadata().expect("fstat").len(), 1 << 22);
    let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn copies_inside_the_server() {
    let mounted = Mounted::new();
    let content: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
    fs::write(mounted.path("from"), &content).expect("write");
    let from = File::open(mounted.path("from")).expect("open");
    let to = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("to"))
        .expect("create");
    let mut from_offset = 100;
    let mut to_offset = 7;
    while from_offset < content.len() as u64 {
        let wanted = content.len() - from_offset as usize;
        let copied = rustix::fs::copy_file_range(
            &from,
            Some(&mut from_offset),
            &to,
            Some(&mut to_offset),
            wanted,
        );
        assert_ne!(copied.expect("copy_file_range"), 0);
    }
    let copy = fs::read(mounted.path("to")).expect("read");
    assert_eq!(copy.len(), content.len() - 100 + 7);
    assert!(copy[..7] == [0; 7] && copy[7..] == content[100..]);
}

#[test]
fn set_id_bits_fall_when_others_write() {
    let mounted = Mounted::new();
    let path = mounted.path("program");
    let shown = path.display();
    let mode = || fs::metadata(&path).expect("stat").mode() & 0o7777;
    let arm = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
    fs::set_permissions(
        mounted.place.mountpoint(),
        fs::Permissions::from_mode(0o777),
    )
    .expect("chmod");
    fs::set_permissions(
        mounted.place.mountpoint().parent().expect("parent"),
        fs::Permissions::from_mode(0o755),
    )
    .expect("chmod");
    fs::write(&path, b"content").expect("write");
    for script in [
        "echo x >> ",
        "echo x 1<> ",
        "truncate -s 3 ",
        ": > ",
        "fallocate -l 8192 ",
    ] {
        arm();
        assert!(run_as(65534, &format!("{script} {shown}")), "{script}");
        assert_eq!(mode(), 0o777, "after `{script}` by somebody else");
    }
    arm();
    fs::write(&path, b"root keeps them").expect("write");
    assert_eq!(mode(), 0o6777);
    std::os::unix::fs::chown(&path, Some(1), Some(1)).expect("chown");
    assert_eq!(mode(), 0o777, "after a change of owner");
}

#[test]
fn permissions_are_the_kernels() {
    let mounted = Mounted::new();
    let parent = mounted
        .place
        .mountpoint()
        .parent()
        .expect("parent")
        .to_owned();
    fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).expect("chmod");
    let path = mounted.path("private");
    fs::write(&path, b"secret").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
    assert!(!run_as(
        65534,
        &format!("cat {} 2>/dev/null", path.display())
    ));
    assert!(!run_as(
        65534,
        &format!("touch {} 2>/dev/null", mounted.path("new").display())
    ));
    let shared = mounted.path("shared");
    fs::create_dir(&shared).expect("mkdir");
    std::os::unix::fs::chown(&shared, None, Some(12)).expect("chown");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).expect("chmod");
    assert!(run_as(
        65534,
        &format!(
            "umask 027; mkdir {0}/d; echo x > {0}/f; (umask 0; : > {0}/g; chmod 0 {0}/g)",
            shared.display()
        )
    ));
    let made = |name: &str| fs::metadata(shared.join(name)).expect("stat");
    assert_eq!(
        (made("d").mode() & 0o7777, made("d").gid(), made("d").uid()),
        (0o2750, 12, 65534)
    );
    assert_eq!((made("f").mode() & 0o7777, made("f").gid()), (0o640, 12));
    // A file made for writing can be written whatever its mode.
    assert!(run_as(
        65534,
        &format!("umask 0777; echo x > {}/unreadable", shared.display())
    ));
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let mounted = Mounted::new();
    let path = mounted.path("filler");
    let mut file = File::create(&path).expect("create");
    let piece = vec![5; 1 << 20];
    let error = loop {
        if let Err(error) = file.write_all(&piece) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.write_all_at(&[6; 4096], 0)
        .expect("overwriting still works");
    let space = rustix::fs::statvfs(mounted.place.mountpoint()).expect("statvfs");
    assert!(
        space.f_bavail < 256,
        "less than the piece that found no room"
    );
    assert_eq!(space.f_namemax, 255);
    fs::remove_file(&path).expect("unlink still works");
    drop(file);
    fs::write(mounted.path("small"), b"room again").expect("write");
}

#[test]
fn file_handles_outlive_the_kernels_memory() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("directory")).expect("mkdir");
    fs::write(mounted.path("directory/file"), b"by handle").expect("write");
    let script = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
mount, path = sys.argv[1], sys.argv[2]
handle, number = Handle(128), ctypes.c_int()
if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(number), 0): sys.exit(2)
open("/proc/sys/vm/drop_caches", "w").write("2")
root = os.open(mount, os.O_RDONLY)
file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
if file < 0: sys.exit(3)
if os.read(file, 100) != b"by handle": sys.exit(4)
os.close(file)
os.unlink(path)
open("/proc/sys/vm/drop_caches", "w").write("2")
if libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY) >= 0: sys.exit(5)
if ctypes.get_errno() != 116: sys.exit(6)
"#;
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .args([mounted.place.mountpoint(), mounted.path("directory/file")])
        .status()
        .expect("python3");
    assert_eq!(status.code(), Some(0));
}
