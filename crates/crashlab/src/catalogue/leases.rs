//! Operations of a process with a lease, and those that meet its lease.

use super::{BLOCK, KEEP, allocate, path, random_offset, truncate, write};
use crate::operation::Operation;
use crate::random::Random;

fn write_leased(offset: u64, bytes: usize, byte: u8) -> Operation {
    Operation::WriteLeased {
        offset,
        bytes,
        byte,
    }
}

/// The leases that workloads begin with: of a file with data, an empty one, and one with holes and
/// reserved blocks; then with a holder that does not answer a revocation, and with one that
/// overwrites in place.
pub fn leases() -> Vec<Operation> {
    [
        ("a", false, false),
        ("e", false, false),
        ("h", false, false),
        ("a", true, false),
        ("a", false, true),
        ("a", true, true),
    ]
    .map(|(name, is_stopped, is_in_place)| Operation::Lease {
        path: path(name),
        is_stopped,
        is_in_place,
    })
    .into()
}

/// The operations while a file is leased.
pub fn leased() -> Vec<Operation> {
    vec![
        write_leased(4096, 4096, 50),
        write_leased(100, 50, 51),
        // In the last block of `a`, behind the end of it, across it, and with a gap.
        write_leased(10_000, 100, 52),
        write_leased(9_900, 200, 53),
        write_leased(10_000, 5_000, 54),
        write_leased(10_500, 20, 55),
        write_leased(0, 10_000, 56),
        // Too far behind the end.
        write_leased(20_000, 10, 57),
        write_leased(0, 30_000, 58),
        write_leased(6 * BLOCK + 100, 3000, 59),
        Operation::FoldLease,
        Operation::EndLease,
        Operation::Checkpoint,
        write("a", 10, 64, 60),
        truncate("a", 9_000),
        Operation::Append {
            path: path("a"),
            bytes: 300,
            byte: 61,
        },
        Operation::Unlink { path: path("a") },
        allocate("a", 8192, 20_000, KEEP),
        // Other bytes where one of those above has just been.
        write_leased(9_950, 100, 62),
    ]
}

/// One operation by chance, of a process with a lease.
pub fn random_leased(random: &mut Random) -> Operation {
    let names = ["a", "b", "e", "h", "d/f", "d/new", "new"];
    match random.below(12) {
        0 | 1 => Operation::Lease {
            path: path(random.pick::<&str>(&names)),
            is_stopped: random.below(4) == 0,
            is_in_place: random.below(2) == 0,
        },
        2 => Operation::FoldLease,
        3 => Operation::EndLease,
        4..=6 => write_leased(
            random.below(8) * BLOCK,
            BLOCK as usize,
            random.below(256) as u8,
        ),
        _ => write_leased(
            random_offset(random),
            1 + random.below(9000) as usize,
            random.below(256) as u8,
        ),
    }
}
