//! The operations that are tried, and the small tree that they are tried on.

mod device;
mod leases;

pub use device::{on_device, sinks};
pub use leases::{leased, leases, random_leased};

use crate::operation::Operation;
use crate::random::Random;
use fs::{AllocateOptions, FileType, RenameOptions, XattrMode};

const BLOCK: u64 = pmem::BLOCK_BYTES as u64;

/// A rename that fails if the new name exists.
pub const NO_REPLACE: RenameOptions = RenameOptions {
    no_replace: true,
    exchange: false,
    whiteout: false,
};
/// A rename that swaps two names.
pub const EXCHANGE: RenameOptions = RenameOptions {
    no_replace: false,
    exchange: true,
    whiteout: false,
};
/// A rename that leaves a whiteout.
pub const WHITEOUT: RenameOptions = RenameOptions {
    no_replace: false,
    exchange: false,
    whiteout: true,
};
const PLAIN: RenameOptions = RenameOptions {
    no_replace: false,
    exchange: false,
    whiteout: false,
};

const RESERVE: AllocateOptions = AllocateOptions {
    keep_size: false,
    punch_hole: false,
    zero_range: false,
};
const KEEP: AllocateOptions = AllocateOptions {
    keep_size: true,
    punch_hole: false,
    zero_range: false,
};
const PUNCH: AllocateOptions = AllocateOptions {
    keep_size: true,
    punch_hole: true,
    zero_range: false,
};
const ZERO: AllocateOptions = AllocateOptions {
    keep_size: false,
    punch_hole: false,
    zero_range: true,
};

fn path(text: &str) -> String {
    text.to_string()
}

fn create(name: &str) -> Operation {
    Operation::Create {
        path: path(name),
        mode: 0o644,
    }
}

fn directory(name: &str) -> Operation {
    Operation::MakeDirectory {
        path: path(name),
        mode: 0o755,
    }
}

fn own(name: &str, uid: u32) -> Operation {
    Operation::SetOwner {
        path: path(name),
        uid,
        gid: 0,
    }
}

fn write(name: &str, offset: u64, bytes: usize, byte: u8) -> Operation {
    Operation::Write {
        path: path(name),
        offset,
        bytes,
        byte,
    }
}

fn rename(from: &str, to: &str, options: RenameOptions) -> Operation {
    Operation::Rename {
        from: path(from),
        to: path(to),
        options,
    }
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link {
        from: path(from),
        to: path(to),
    }
}

fn truncate(name: &str, size: u64) -> Operation {
    Operation::Truncate {
        path: path(name),
        size,
    }
}

fn allocate(name: &str, offset: u64, bytes: u64, options: AllocateOptions) -> Operation {
    Operation::Allocate {
        path: path(name),
        offset,
        bytes,
        options,
    }
}

fn xattr(name: &str, key: &str, bytes: usize, byte: u8, mode: XattrMode) -> Operation {
    Operation::SetXattr {
        path: path(name),
        name: path(key),
        bytes,
        byte,
        mode,
    }
}

/// A name so long that fifteen of them fill a block of a directory.
fn long_name(directory: &str, number: usize) -> String {
    format!("{directory}/{number:0>255}")
}

/// What every workload starts from:
///
/// * `a`: three blocks, the last in part; `b`: one small block, a second name at `d/b`; `e`: empty
/// * `h`: holes, data, reserved blocks
/// * `d`: a directory with the file `d/f` (user 1's, small attribute) and the empty directory `d/n`; `g`: an empty directory
/// * `s`, `t`: symbolic links, inline and in a block; `x`: attributes in several blocks
/// * `w`: a directory whose only block is full
pub fn start() -> Vec<Operation> {
    let mut operations = vec![
        create("a"),
        write("a", 0, 10_000, 1),
        create("b"),
        write("b", 0, 100, 2),
        create("e"),
        create("h"),
        write("h", BLOCK, 5000, 3),
        allocate("h", 6 * BLOCK, 2 * BLOCK, RESERVE),
        directory("d"),
        link("b", "d/b"),
        create("d/f"),
        own("d/f", 1),
        write("d/f", 0, 5000, 4),
        xattr("d/f", "user.small", 20, 5, XattrMode::Any),
        directory("d/n"),
        directory("g"),
        Operation::MakeSymlink {
            path: path("s"),
            target_bytes: 10,
        },
        Operation::MakeSymlink {
            path: path("t"),
            target_bytes: 300,
        },
        create("x"),
        xattr("x", "user.large", 9000, 6, XattrMode::Any),
        directory("w"),
    ];
    operations.extend((0..15).map(|number| link("b", &long_name("w", number))));
    operations
}

/// The operations of one- and two-operation workloads.
pub fn operations() -> Vec<Operation> {
    let mut operations = names();
    operations.extend(renames());
    operations.extend(contents());
    operations.extend(attributes());
    operations.extend([Operation::Checkpoint, Operation::Remount]);
    operations
}

fn names() -> Vec<Operation> {
    vec![
        create("new"),
        create("d/new"),
        create(&long_name("w", 20)),
        Operation::MakeNode {
            path: path("pipe"),
            file_type: FileType::Fifo,
        },
        Operation::MakeNode {
            path: path("disk"),
            file_type: FileType::BlockDevice,
        },
        directory("newdir"),
        directory("d/newdir"),
        Operation::MakeSymlink {
            path: path("d/short"),
            target_bytes: 5,
        },
        Operation::MakeSymlink {
            path: path("long"),
            target_bytes: 1000,
        },
        link("a", "d/a"),
        link("b", &long_name("w", 21)),
        link("t", "g/t"),
        Operation::Unlink { path: path("a") },
        Operation::Unlink { path: path("b") },
        Operation::Unlink { path: path("d/f") },
        Operation::Unlink { path: path("x") },
        Operation::Unlink { path: path("t") },
        Operation::Unlink {
            path: long_name("w", 7),
        },
        Operation::RemoveDirectory { path: path("g") },
        Operation::RemoveDirectory { path: path("d/n") },
        Operation::RemoveDirectory { path: path("d") },
        Operation::Hold { path: path("a") },
        Operation::CreateUnnamed { mode: 0o600 },
        Operation::WriteHeld {
            offset: 100,
            bytes: 5000,
            byte: 7,
        },
        Operation::LinkHeld {
            path: path("d/held"),
        },
        Operation::Release,
    ]
}

fn renames() -> Vec<Operation> {
    vec![
        rename("a", "moved", PLAIN),
        rename("a", "b", PLAIN),
        rename("a", "d/f", PLAIN),
        rename("d/f", "a", PLAIN),
        rename("d/f", "g/f", PLAIN),
        rename("b", "d/b", PLAIN),
        rename("d", "g", PLAIN),
        rename("g", "d/n", PLAIN),
        rename("d/n", "moved", PLAIN),
        rename("d", "d/n/d", PLAIN),
        rename("a", &long_name("w", 22), PLAIN),
        rename(&long_name("w", 3), "a", PLAIN),
        rename("a", "moved", NO_REPLACE),
        rename("a", "b", NO_REPLACE),
        rename("a", "d/f", EXCHANGE),
        rename("a", "d", EXCHANGE),
        rename("g", "d/n", EXCHANGE),
        rename("a", "moved", WHITEOUT),
        rename("d/f", "a", WHITEOUT),
    ]
}

/// The operations on the content of files.
pub fn contents() -> Vec<Operation> {
    vec![
        write("a", 4096, 4096, 20),
        write("a", 10, 64, 21),
        write("a", 3000, 3000, 22),
        write("a", 4000, 200, 23),
        write("a", 100_000, 10, 24),
        write("e", 0, 1, 25),
        write("h", 0, 4096, 26),
        write("h", 6 * BLOCK + 100, 2000, 27),
        write("h", 5 * BLOCK, 3 * BLOCK as usize, 28),
        write("b", 3 << 20, 100, 29),
        Operation::Append {
            path: path("a"),
            bytes: 4096,
            byte: 30,
        },
        Operation::Append {
            path: path("e"),
            bytes: 300,
            byte: 31,
        },
        Operation::Append {
            path: path("b"),
            bytes: 20,
            byte: 32,
        },
        truncate("a", 0),
        truncate("a", 5000),
        truncate("a", 8192),
        truncate("a", 20_000),
        truncate("h", 3 << 20),
        truncate("e", 100),
        allocate("e", 0, 10_000, RESERVE),
        allocate("a", 8192, 20_000, KEEP),
        allocate("a", 4000, 5000, PUNCH),
        allocate("a", 0, 3 * BLOCK, PUNCH),
        allocate("h", 2 * BLOCK + 10, 100, PUNCH),
        allocate("a", 100, 9000, ZERO),
        allocate("h", 0, 9 * BLOCK, ZERO),
    ]
}

fn attributes() -> Vec<Operation> {
    vec![
        Operation::SetMode {
            path: path("a"),
            mode: 0o600,
        },
        Operation::SetMode {
            path: path("d"),
            mode: 0o700,
        },
        Operation::SetOwner {
            path: path("a"),
            uid: 1000,
            gid: 1001,
        },
        own("d/f", 2),
        own("d/f", 0),
        Operation::SetTimes {
            path: path("b"),
            seconds: 1_000_000,
        },
        xattr("a", "user.new", 30, 40, XattrMode::Create),
        xattr("d/f", "user.small", 4500, 41, XattrMode::Replace),
        xattr("x", "user.other", 10, 42, XattrMode::Any),
        xattr("d", "user.dir", 100, 43, XattrMode::Any),
        Operation::RemoveXattr {
            path: path("d/f"),
            name: path("user.small"),
        },
        Operation::RemoveXattr {
            path: path("x"),
            name: path("user.large"),
        },
    ]
}

/// What a workload with large writes does, on a pool that has room for them.
pub fn large_operations() -> Vec<Operation> {
    const MEBIBYTE: usize = 1 << 20;
    vec![
        write("a", 0, MEBIBYTE, 50),
        write("a", 1234, MEBIBYTE, 51),
        Operation::Append {
            path: path("a"),
            bytes: MEBIBYTE,
            byte: 52,
        },
        allocate("a", 0, MEBIBYTE as u64, ZERO),
        truncate("a", 100),
        write("h", BLOCK / 2, MEBIBYTE, 53),
        Operation::Unlink { path: path("h") },
    ]
}

const FILES: [&str; 8] = ["a", "b", "e", "h", "d/f", "d/b", "g/k", "x"];
const DIRECTORIES: [&str; 5] = ["d", "g", "d/n", "w", "m"];

/// Every path that an operation of this module may have made, for looking up those that should not exist.
pub fn known_paths() -> Vec<String> {
    let mut paths: Vec<String> = FILES
        .iter()
        .chain(&DIRECTORIES)
        .map(|name| path(name))
        .collect();
    for operation in operations() {
        match operation {
            Operation::Rename { from, to, .. } | Operation::Link { from, to } => {
                paths.extend([from, to])
            }
            Operation::Unlink { path } | Operation::RemoveDirectory { path } => paths.push(path),
            _ => {}
        }
    }
    paths
}

fn random_name(random: &mut Random) -> String {
    match random.below(10) {
        0..6 => path(random.pick::<&str>(&FILES)),
        6 | 7 => path(random.pick::<&str>(&DIRECTORIES)),
        8 => long_name("w", random.below(40) as usize),
        _ => format!("{}/{}", random.pick::<&str>(&DIRECTORIES), random.below(3)),
    }
}

/// Who gets segments, and through which journal it goes on.
pub fn random_mapped(random: &mut Random) -> Operation {
    match random.below(2) {
        0 => Operation::GiveSegments {
            user: *random.pick(&[0, 0, 1, 2]),
        },
        _ => Operation::UseJournal {
            index: random.below(2) as usize,
        },
    }
}

/// One operation by chance, on a small set of names so that they meet.
pub fn random_operation(random: &mut Random) -> Operation {
    let name = random_name(random);
    let other = random_name(random);
    let byte = random.next_number() as u8;
    match random.below(32) {
        0..3 => Operation::Create {
            path: name,
            mode: *random.pick(&[0o600, 0o644, 0o666]),
        },
        3 => Operation::MakeDirectory {
            path: path(random.pick::<&str>(&DIRECTORIES)),
            mode: 0o755,
        },
        4 => Operation::MakeSymlink {
            path: name,
            target_bytes: 1 + random.below(400) as usize,
        },
        5 => Operation::MakeNode {
            path: name,
            file_type: FileType::Socket,
        },
        6 | 7 => Operation::Link {
            from: name,
            to: other,
        },
        8..11 => Operation::Unlink { path: name },
        11 => Operation::RemoveDirectory {
            path: path(random.pick::<&str>(&DIRECTORIES)),
        },
        12..16 => {
            let options = *random.pick(&[PLAIN, PLAIN, NO_REPLACE, EXCHANGE, WHITEOUT]);
            Operation::Rename {
                from: name,
                to: other,
                options,
            }
        }
        16..21 => {
            let most = *random.pick(&[64, 1000, 4096, 20_000]);
            let bytes = 1 + random.below(most) as usize;
            Operation::Write {
                path: name,
                offset: random_offset(random),
                bytes,
                byte,
            }
        }
        21 => Operation::Append {
            path: name,
            bytes: 1 + random.below(6000) as usize,
            byte,
        },
        22 => Operation::Truncate {
            path: name,
            size: random_offset(random),
        },
        23 | 24 => {
            let options = *random.pick(&[RESERVE, KEEP, PUNCH, ZERO]);
            Operation::Allocate {
                path: name,
                offset: random_offset(random),
                bytes: 1 + random.below(30_000),
                options,
            }
        }
        25 => Operation::SetMode {
            path: name,
            mode: *random.pick(&[0o600, 0o644, 0o755]),
        },
        26 => Operation::SetOwner {
            path: name,
            uid: random.below(3) as u32,
            gid: 0,
        },
        27 => Operation::SetTimes {
            path: name,
            seconds: random.below(1 << 40) as i64,
        },
        28 => {
            let mode = *random.pick(&[XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
            let key = format!("user.{}", random.below(3));
            Operation::SetXattr {
                path: name,
                name: key,
                bytes: random.below(6000) as usize,
                byte,
                mode,
            }
        }
        29 => Operation::RemoveXattr {
            path: name,
            name: format!("user.{}", random.below(3)),
        },
        30 => Operation::Checkpoint,
        _ => match random.below(6) {
            0 => Operation::Hold { path: name },
            1 => Operation::CreateUnnamed { mode: 0o640 },
            2 => Operation::LinkHeld { path: name },
            3 => Operation::WriteHeld {
                offset: random_offset(random),
                bytes: 3000,
                byte,
            },
            4 => Operation::Release,
            _ => Operation::Remount,
        },
    }
}

fn random_offset(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(8) * BLOCK,
        1 => random.below(8192),
        2 => random.below(60_000),
        _ => 0,
    }
}
