//! Where programs run: a pool that another process has mounted, and a directory on tmpfs; and a running program, seen from the experiment.

use super::DirectOptions;
use super::program::{self, Answer, Moved, Operation, Order};
use crate::child::IdleMount;
use crate::error::BenchError;
use crate::memory::require_room;
use crate::ops::bed::{create_pool, on_tmpfs, work_directory};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

const FILL_BYTES: usize = 1 << 20;
const PRELOAD: &str = "LD_PRELOAD";

/// What a program runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    /// The mount, with the preload library.
    Direct,
    /// tmpfs.
    Tmpfs,
    /// The same mount without the library.
    Fuse,
}

/// A mounted pool and a directory on tmpfs.
pub(super) struct Bed {
    mount: IdleMount,
    library: PathBuf,
    tmpfs: TempDir,
    /// Holds the pool; after the mount, which lies in it.
    place: TempDir,
}

impl Bed {
    pub(super) fn make(options: &DirectOptions) -> Result<Bed, BenchError> {
        Bed::mounted(options, false)
    }

    /// A smaller one, on whose mount processes overwrite in place.
    pub(super) fn in_place(options: &DirectOptions) -> Result<Bed, BenchError> {
        const LEAST_BYTES: u64 = 64 << 20;
        let small = DirectOptions {
            pool_bytes: LEAST_BYTES.max(4 * options.file_bytes),
            ..options.clone()
        };
        Bed::mounted(&small, true)
    }

    fn mounted(options: &DirectOptions, in_place: bool) -> Result<Bed, BenchError> {
        require_room(&options.directory, 2 * options.pool_bytes)?;
        let place = work_directory(&options.directory)?;
        let (pool, mountpoint) = (place.path().join("pool"), place.path().join("mount"));
        create_pool(&pool, options.pool_bytes)?.close()?;
        std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
        Ok(Bed {
            mount: IdleMount::start(&pool, &mountpoint, in_place)?,
            library: options.library.clone(),
            tmpfs: work_directory(&on_tmpfs(&options.directory))?,
            place,
        })
    }

    /// A directory for what belongs to no side.
    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    pub(super) fn directory(&self, side: Side) -> &Path {
        match side {
            Side::Tmpfs => self.tmpfs.path(),
            Side::Direct | Side::Fuse => self.mount.mountpoint(),
        }
    }

    /// Removes what measurements have left, so that the next ones have as much room.
    pub(super) fn clear(&self) -> Result<(), BenchError> {
        for directory in [self.directory(Side::Direct), self.directory(Side::Tmpfs)] {
            let failed = || BenchError::io("empty", directory);
            for entry in std::fs::read_dir(directory).map_err(failed())? {
                let path = entry.map_err(failed())?.path();
                let removed = match path.is_dir() {
                    true => std::fs::remove_dir_all(&path),
                    false => std::fs::remove_file(&path),
                };
                removed.map_err(BenchError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// A program as it runs on this side. What it says is kept from the report.
    pub(super) fn command(&self, side: Side, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env_remove(PRELOAD);
        if side == Side::Direct {
            command.env(PRELOAD, &self.library);
            // The rows are of attached files, so that files are attached by number, not by price.
            command.env("PERDURE_DIRECT_AFTER", "16");
        }
        command
    }

    /// A file of its own for a loop on this side, filled but for appends, and the loop.
    pub(super) fn start(
        &self,
        side: Side,
        name: &str,
        order: &Order,
    ) -> Result<Program, BenchError> {
        if order.operation != Operation::Append {
            fill(&self.path(side, name), order.file_bytes)?;
        }
        self.start_again(side, name, order)
    }

    /// The same on the file as it is.
    pub(super) fn start_again(
        &self,
        side: Side,
        name: &str,
        order: &Order,
    ) -> Result<Program, BenchError> {
        let command = self.command(side, Path::new("/proc/self/exe"));
        Program::start(command, &self.path(side, name), order)
    }

    fn path(&self, side: Side, name: &str) -> PathBuf {
        let name = format!("{name}-{side:?}").to_lowercase();
        self.directory(side).join(name)
    }
}

/// Makes a file of so many bytes, none of which is a hole.
pub(crate) fn fill(path: &Path, bytes: u64) -> Result<(), BenchError> {
    let content = vec![0x5a; FILL_BYTES];
    let failed = || BenchError::io("fill", path);
    let mut file = File::create(path).map_err(failed())?;
    let pieces = bytes.div_ceil(FILL_BYTES as u64);
    for _ in 0..pieces {
        file.write_all(&content).map_err(failed())?;
    }
    Ok(())
}

/// A loop in another process.
pub(super) struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    path: PathBuf,
    /// What the last operation moved.
    last: Option<Moved>,
    /// Operations before the first that counts.
    warm_up: u64,
    /// What warming up took.
    pub(super) warm: Answer,
}

impl Program {
    /// Starts it with this command on a file, and waits until it is warm.
    pub(super) fn start(
        mut command: Command,
        path: &Path,
        order: &Order,
    ) -> Result<Program, BenchError> {
        let text = serde_json::to_string(order).map_err(|error| failed(&error))?;
        let child = command
            .arg(program::ARGUMENT)
            .arg(text)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| failed(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(answers)) = pipes else {
            return Err(failed(&"it has no pipes"));
        };
        let mut program = Program {
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
            path: path.to_owned(),
            last: None,
            warm_up: order.warm_up,
            warm: Answer {
                nanoseconds: 0.0,
                kernel_calls: 0.0,
                last: None,
            },
        };
        program.warm = program.answer()?;
        Ok(program)
    }

    /// Operations that take about so long. Found out by some that are done now: while the program warmed up it came to know the file, which can take longer than the operations themselves, and its rounds
    /// would be shorter than those of the others.
    pub(super) fn count_for(&mut self, seconds: f64) -> Result<u64, BenchError> {
        let nanoseconds = self.run(self.warm_up.max(1))?.nanoseconds.max(1.0);
        Ok((seconds * 1e9 / nanoseconds).clamp(50.0, 1e7) as u64)
    }

    /// Does so many operations.
    pub(super) fn run(&mut self, count: u64) -> Result<Answer, BenchError> {
        self.begin(count)?;
        self.answer()
    }

    /// Lets it begin with so many operations.
    pub(super) fn begin(&mut self, count: u64) -> Result<(), BenchError> {
        let Some(orders) = &mut self.orders else {
            return Err(failed(&"it has ended"));
        };
        writeln!(orders, "{count}").map_err(|error| failed(&error))
    }

    /// Waits until it has done them.
    pub(super) fn answer(&mut self) -> Result<Answer, BenchError> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|error| failed(&error))?;
        if line.is_empty() {
            let reason = "it ended; its own message, if it has one, is above";
            return Err(failed(&reason));
        }
        let answer: Answer = serde_json::from_str(&line).map_err(|error| failed(&error))?;
        self.last = answer.last;
        Ok(answer)
    }

    /// Whether the last operation moved what is in the file, as a process sees it that has nothing to do with the program.
    pub(super) fn verify(&self) -> Result<(), BenchError> {
        let Some(Moved { offset, word }) = self.last else {
            return Ok(());
        };
        let mut bytes = [0; 8];
        let file = File::open(&self.path).map_err(BenchError::io("open", &self.path))?;
        let read = file.read_exact_at(&mut bytes, offset);
        read.map_err(BenchError::io("read", &self.path))?;
        match u64::from_le_bytes(bytes) == word {
            true => Ok(()),
            false => Err(BenchError::WrongData(format!(
                "{} has {bytes:?} at {offset}, not {:?}",
                self.path.display(),
                word.to_le_bytes()
            ))),
        }
    }
}

fn failed(reason: &dyn std::fmt::Display) -> BenchError {
    BenchError::program("the measured loop", reason)
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It ends when its stdin does; nothing depends on how.
        let _ = self.child.wait();
    }
}
