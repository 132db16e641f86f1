//! Processes that read and write files of a mount directly: how many, which, and why some of what they do goes through the kernel.

use super::read_cache::Percent;
use crate::output::Bytes;
use serde::Serialize;
use server::control::{ClientStatus, DirectStatus, KeptStatus, KernelPath};
use std::fmt;

/// More processes than this are shown only if all are asked for.
const ROWS_MAX: usize = 20;
/// Inodes that are named for each process.
const INODES_MAX: usize = 5;

/// What a server says of direct access as a whole, as a line of the report.
pub(super) struct Line<'a>(pub(super) &'a DirectStatus);

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = self.0;
        write!(
            out,
            "direct     {}, {}, {} read",
            Counted(direct.processes, "process", "processes"),
            Counted(direct.leases, "lease", "leases"),
            Counted(direct.files_read, "file", "files"),
        )?;
        if direct.files_mapped > 0 {
            write!(out, " ({} mapped)", direct.files_mapped)?;
        }
        writeln!(
            out,
            "; {} attached, {} taken back, {} forced, {} timed out{}",
            direct.attached,
            direct.leases_taken_back,
            direct.leases_forced,
            direct.leases_timed_out,
            match (direct.in_place, direct.reads_only) {
                (true, _) => "; overwrites in place",
                (_, true) => "; reads only",
                _ => "",
            },
        )
    }
}

/// A line of the report that says what one user's processes keep.
pub(super) struct KeptLine<'a>(pub(super) &'a KeptStatus);

impl fmt::Display for KeptLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.0;
        writeln!(
            out,
            "kept       user {}: {}, {} of them free; {} count against quota and share",
            kept.user,
            Counted(kept.segments, "segment", "segments"),
            Bytes(kept.free_bytes),
            Bytes(kept.charged_bytes),
        )
    }
}

/// A number of things, the word for one and the word for several.
struct Counted(u64, &'static str, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted(count, one, several) = self;
        match count {
            1 => write!(out, "1 {one}"),
            _ => write!(out, "{count} {several}"),
        }
    }
}

/// Processes, those that do most first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Clients {
    rows: Vec<Row>,
    /// How many of them are printed; programs get all.
    #[serde(skip)]
    shown: usize,
}

/// A process, and what follows from its counts.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    client: ClientStatus,
    /// Operations that went through the kernel.
    kernel_operations: u64,
    /// Operations done directly among all, from 0 to 1; `None` before the first.
    direct_ratio: Option<f64>,
}

impl Clients {
    /// The first ones, or `all`.
    pub(super) fn new(clients: Vec<ClientStatus>, all: bool) -> Clients {
        let mut rows: Vec<Row> = clients.into_iter().map(Row::new).collect();
        rows.sort_by_key(|row| {
            let operations = row
                .direct_operations()
                .saturating_add(row.kernel_operations);
            (std::cmp::Reverse(operations), row.client.process)
        });
        let shown = if all { rows.len() } else { ROWS_MAX };
        Clients { rows, shown }
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return writeln!(out, "  no process uses files directly");
        }
        writeln!(
            out,
            "   process      user  command          leased   read  segments  by kernel  directly"
        )?;
        let mut rows = self.rows.iter().take(self.shown);
        rows.try_for_each(|row| write!(out, "{row}"))?;
        match self.rows.len().saturating_sub(self.shown) {
            0 => Ok(()),
            hidden => {
                let processes = Counted(hidden as u64, "process", "processes");
                writeln!(
                    out,
                    "           …  {processes} with fewer operations; --all shows them"
                )
            }
        }
    }
}

impl Row {
    fn new(client: ClientStatus) -> Row {
        let mut row = Row {
            kernel_operations: client.kernel_path.operations(),
            direct_ratio: None,
            client,
        };
        // What a process says of itself may be any number.
        let (direct, kernel) = (row.direct_operations() as f64, row.kernel_operations as f64);
        row.direct_ratio = (direct + kernel > 0.0).then(|| direct / (direct + kernel));
        row
    }

    fn direct_operations(&self) -> u64 {
        self.client.reads.saturating_add(self.client.writes)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = &self.client;
        writeln!(
            out,
            "  {:>8}  {:>8}  {:15}  {:>6}  {:>5}  {:>8}  {:>9}  {:>8}",
            client.process,
            client.user,
            printable(&client.command),
            client.files_leased.len(),
            client.files_read.len(),
            client.segments,
            self.kernel_operations,
            Percent(self.direct_ratio),
        )?;
        for detail in self.details() {
            // Below the command.
            writeln!(out, "{:22}{detail}", "")?;
        }
        Ok(())
    }
}

impl Row {
    /// Lines below the row, those that say anything.
    fn details(&self) -> Vec<String> {
        let client = &self.client;
        let mut details = Vec::new();
        if self.direct_operations() > 0 {
            details.push(format!(
                "directly: {} of {}, {} of {}",
                Counted(client.reads, "read", "reads"),
                Bytes(client.read_bytes),
                Counted(client.writes, "write", "writes"),
                Bytes(client.written_bytes),
            ));
        }
        let reasons = reasons(&client.kernel_path);
        if !reasons.is_empty() {
            details.push(format!("by the kernel: {}", reasons.join(", ")));
        }
        let inodes = [
            ("leased", &client.files_leased),
            ("read", &client.files_read),
            ("mapped", &client.files_mapped),
        ];
        for (what, inodes) in inodes.iter().filter(|(_, inodes)| !inodes.is_empty()) {
            details.push(format!("{what} inodes {}", Inodes(inodes)));
        }
        details
    }
}

/// The first few inodes, and how many there are beside them.
struct Inodes<'a>(&'a [u64]);

impl fmt::Display for Inodes<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, more) = self.0.split_at(self.0.len().min(INODES_MAX));
        let named: Vec<String> = named.iter().map(u64::to_string).collect();
        write!(out, "{}", named.join(", "))?;
        match more.len() {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

/// Why operations went through the kernel, those reasons that there were.
fn reasons(path: &KernelPath) -> Vec<String> {
    let all = [
        (path.not_attached, "before the file was attached"),
        (
            path.refused,
            "in a pause after the file was refused or taken back",
        ),
        (path.taken_back, "because the file had been taken back"),
        (
            path.no_place,
            "in holes or blocks that the process may not use",
        ),
        (path.not_offered, "not offered directly"),
        (path.no_room, "without room in the lease"),
    ];
    let there_were = all.iter().filter(|(count, _)| *count > 0);
    there_were
        .map(|(count, why)| format!("{count} {why}"))
        .collect()
}

/// A process chooses its name; that must not be able to do anything to the terminal.
fn printable(command: &str) -> String {
    let shown = |character: char| match character {
        ' '..='~' => character,
        letter if letter.is_alphanumeric() => letter,
        _ => '?',
    };
    match command {
        "" => "-".to_owned(),
        command => command.chars().map(shown).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(process: u32) -> ClientStatus {
        ClientStatus {
            process,
            user: 1000,
            command: "redis-server".to_owned(),
            files_read: Vec::new(),
            files_leased: vec![12],
            files_mapped: Vec::new(),
            segments: 3,
            reads: 0,
            read_bytes: 0,
            writes: 3 * u64::from(process),
            written_bytes: 4096,
            kernel_path: KernelPath {
                not_attached: u64::from(process),
                ..KernelPath::default()
            },
        }
    }

    #[test]
    fn one_of_something_is_no_plural() {
        let mut direct = DirectStatus {
            processes: 2,
            leases: 3,
            files_read: 5,
            attached: 12,
            leases_taken_back: 4,
            ..DirectStatus::default()
        };
        assert_eq!(
            Line(&direct).to_string(),
            "direct     2 processes, 3 leases, 5 files read; 12 attached, 4 taken back, 0 forced, 0 timed out\n"
        );
        (direct.processes, direct.leases, direct.files_read) = (1, 1, 1);
        direct.files_mapped = 1;
        let line = Line(&direct).to_string();
        let begin = "direct     1 process, 1 lease, 1 file read (1 mapped); ";
        assert!(line.starts_with(begin), "{line}");
        direct.in_place = true;
        let line = Line(&direct).to_string();
        assert!(
            line.ends_with(" timed out; overwrites in place\n"),
            "{line}"
        );
    }

    #[test]
    fn the_busiest_twenty_are_shown_unless_all_are_asked_for() {
        let clients: Vec<ClientStatus> = (1..=25).map(client).collect();
        let short = Clients::new(clients.clone(), false);
        let text = short.to_string();
        // A process has a row, what it did directly, its reasons, and its leased inodes.
        assert_eq!(text.lines().count(), 1 + 4 * 20 + 1, "{text}");
        assert!(
            text.contains(" 5 processes with fewer operations"),
            "{text}"
        );
        assert!(text.contains("   75.0 %\n"), "{text}");
        let json = serde_json::to_value(&short).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(25));
        assert_eq!(json[0]["process"], 25);
        assert_eq!(json[0]["kernel_path"]["not_attached"], 25);
        assert_eq!(json[0]["kernel_operations"], 25);
        assert_eq!(json[0]["direct_ratio"], 0.75);
        let all = Clients::new(clients.clone(), true).to_string();
        assert_eq!(all.lines().count(), 1 + 4 * 25, "{all}");
        let text = Clients::new(clients[..21].to_vec(), false).to_string();
        assert!(text.contains(" 1 process with fewer"), "{text}");
        let none = Clients::new(Vec::new(), false).to_string();
        assert_eq!(none, "  no process uses files directly\n");
    }

    #[test]
    fn columns_stand_below_their_names() {
        let mut wide = client(4_194_304);
        (wide.user, wide.command) = (4_000_000, "fifteen letters".to_owned());
        let text = Clients::new(vec![wide], false).to_string();
        let lines: Vec<&str> = text.lines().collect();
        let width = |line: &str| line.chars().count();
        assert_eq!(width(lines[0]), width(lines[1]), "{text}");
        let command = lines[0].find("command").expect("the column");
        assert!(lines[1][command..].starts_with("fifteen"), "{text}");
        assert_eq!(lines[2].find("directly: 0 reads"), Some(command), "{text}");
    }

    #[test]
    fn many_inodes_are_counted_and_only_reasons_that_there_were_are_given() {
        assert_eq!(Inodes(&[7]).to_string(), "7");
        assert_eq!(Inodes(&[1, 2, 3, 4, 5]).to_string(), "1, 2, 3, 4, 5");
        let many: Vec<u64> = (1..=8).collect();
        assert_eq!(Inodes(&many).to_string(), "1, 2, 3, 4, 5 and 3 more");
        let path = KernelPath {
            taken_back: 2,
            no_room: 1,
            ..KernelPath::default()
        };
        let expected = [
            "2 because the file had been taken back",
            "1 without room in the lease",
        ];
        assert_eq!(reasons(&path), expected);
        let idle = ClientStatus {
            files_leased: Vec::new(),
            ..client(0)
        };
        let text = Clients::new(vec![idle], false).to_string();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("  -\n"), "no share of nothing: {text}");
    }

    #[test]
    fn processes_that_lie_do_no_harm() {
        let liar = ClientStatus {
            command: "\x1b[2J\u{202e}naïve".to_owned(),
            reads: u64::MAX,
            writes: u64::MAX,
            read_bytes: u64::MAX,
            kernel_path: KernelPath {
                refused: u64::MAX,
                no_room: u64::MAX,
                ..KernelPath::default()
            },
            ..client(1)
        };
        let text = Clients::new(vec![liar], false).to_string();
        assert!(text.contains("  ?[2J?naïve "), "{text:?}");
        assert!(text.contains(" 50.0 %\n"), "{text}");
        assert_eq!(printable(""), "-");
    }
}
