//! The four Filebench personalities with the parameters of SanGuo's Table I: I/O of 512 bytes, file sets of half the capacity.
//!
//! The scripts are those of Filebench's `fileserver.f`, `webproxy.f`, `webserver.f` and `varmail.f`, flowop by flowop; so are directory
//! widths, the share of files that is there at the start, the distributions of sizes, and the way in which files are picked (in rotation). What differs:
//! Webserver's log is begun anew when it has reached [`LOG_BYTES`], or it would outgrow the pool in a long run.

mod file_set;
mod run;
mod sizes;

pub(crate) use file_set::FileSet;
pub(crate) use run::{Outcome, Stop, run, run_on};
pub(crate) use sizes::{Random, TreeSizes};

use serde::{Serialize, Serializer};
use std::fmt::{self, Display};
use std::str::FromStr;

/// Bytes of one read or write (Table I).
pub(crate) const IO_BYTES: usize = 512;
/// Greatest append; the mean is half of it and one byte.
pub(crate) const APPEND_BYTES_MAX: usize = 2 * IO_BYTES;
/// Size at which Webserver's log is removed and begun anew; less beside small file sets.
pub(crate) const LOG_BYTES: u64 = 16 << 20;

/// A workload of Filebench.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Personality {
    /// Creates, writes, appends, reads, deletes whole files in a tree.
    Fileserver,
    /// A proxy's cache: delete, create, five reads, all in one directory.
    Webproxy,
    /// Ten reads of whole files in a tree, one append to a log.
    Webserver,
    /// A mail server: delete, create, append, sync, read, all in one directory.
    Varmail,
}

/// One step of a script. Every one counts as an operation, as in Filebench.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flowop {
    Create,
    Open,
    Close,
    Append,
    AppendLog,
    WriteWhole,
    ReadWhole,
    Sync,
    Delete,
    Stat,
}

impl Flowop {
    pub(crate) const ALL: [Flowop; 10] = [
        Flowop::Create,
        Flowop::Open,
        Flowop::Close,
        Flowop::Append,
        Flowop::AppendLog,
        Flowop::WriteWhole,
        Flowop::ReadWhole,
        Flowop::Sync,
        Flowop::Delete,
        Flowop::Stat,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Flowop::Create => "create",
            Flowop::Open => "open",
            Flowop::Close => "close",
            Flowop::Append => "append",
            Flowop::AppendLog => "append_log",
            Flowop::WriteWhole => "write_whole",
            Flowop::ReadWhole => "read_whole",
            Flowop::Sync => "sync",
            Flowop::Delete => "delete",
            Flowop::Stat => "stat",
        }
    }
}

const FILESERVER: &[Flowop] = &[
    Flowop::Create,
    Flowop::WriteWhole,
    Flowop::Close,
    Flowop::Open,
    Flowop::Append,
    Flowop::Close,
    Flowop::Open,
    Flowop::ReadWhole,
    Flowop::Close,
    Flowop::Delete,
    Flowop::Stat,
];

/// A script that reads `reads` whole files between `before` and `after`.
const fn with_reads<const N: usize>(
    before: &[Flowop],
    reads: usize,
    after: &[Flowop],
) -> [Flowop; N] {
    const READ: [Flowop; 3] = [Flowop::Open, Flowop::ReadWhole, Flowop::Close];
    assert!(N == before.len() + READ.len() * reads + after.len());
    let mut script = [Flowop::Stat; N];
    let mut step = 0;
    while step < N {
        let read_end = N - after.len();
        script[step] = if step < before.len() {
            before[step]
        } else if step < read_end {
            READ[(step - before.len()) % READ.len()]
        } else {
            after[step - read_end]
        };
        step += 1;
    }
    script
}

const WEBPROXY: &[Flowop] = &with_reads::<19>(
    &[
        Flowop::Delete,
        Flowop::Create,
        Flowop::Append,
        Flowop::Close,
    ],
    5,
    &[],
);

const WEBSERVER: &[Flowop] = &with_reads::<31>(&[], 10, &[Flowop::AppendLog]);

const VARMAIL: &[Flowop] = &[
    Flowop::Delete,
    Flowop::Create,
    Flowop::Append,
    Flowop::Sync,
    Flowop::Close,
    Flowop::Open,
    Flowop::ReadWhole,
    Flowop::Append,
    Flowop::Sync,
    Flowop::Close,
    Flowop::Open,
    Flowop::ReadWhole,
    Flowop::Close,
];

impl Personality {
    /// All, in the paper's order.
    pub const ALL: [Personality; 4] = [
        Personality::Fileserver,
        Personality::Webproxy,
        Personality::Webserver,
        Personality::Varmail,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Personality::Fileserver => "fileserver",
            Personality::Webproxy => "webproxy",
            Personality::Webserver => "webserver",
            Personality::Varmail => "varmail",
        }
    }

    pub(crate) fn script(self) -> &'static [Flowop] {
        match self {
            Personality::Fileserver => FILESERVER,
            Personality::Webproxy => WEBPROXY,
            Personality::Webserver => WEBSERVER,
            Personality::Varmail => VARMAIL,
        }
    }

    /// Filebench's `meandirwidth`.
    pub(crate) fn directory_width(self) -> usize {
        match self {
            Personality::Fileserver | Personality::Webserver => 20,
            Personality::Webproxy | Personality::Varmail => 1_000_000,
        }
    }

    /// Filebench's `prealloc`: how many of 100 files are there at the start.
    pub(crate) fn preallocated_percent(self) -> u64 {
        match self {
            Personality::Webserver => 100,
            _ => 80,
        }
    }

    /// Whether its files are removed and made anew.
    pub(crate) fn replaces_files(self) -> bool {
        self != Personality::Webserver
    }
}

impl Display for Personality {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Personality {
    type Err = String;

    fn from_str(text: &str) -> Result<Personality, String> {
        let found = Personality::ALL
            .into_iter()
            .find(|known| known.name() == text);
        let unknown = "known are fileserver, webproxy, webserver and varmail";
        found.ok_or_else(|| unknown.to_owned())
    }
}

impl Serialize for Personality {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests;
