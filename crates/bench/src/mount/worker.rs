//! A process that works in a directory: this program, started again, with the preload library or
//! without it.
//!
//! It gets ready and says so; for each line with a number on its stdin it works once and answers
//! with a line of JSON. So the slices of several workers can alternate.

use crate::direct::program::kernel_calls;
use crate::error::BenchError;
use crate::measure::Places;
use crate::memory::Page;
use crate::personality::{FileSet, Personality, Stop, run};
use crate::target::Directory;
use pmem::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of the process; nothing that a user would type.
pub(crate) const ARGUMENT: &str = "--perdure-bench-worker";

/// Files of one turn of small files, and the bytes of each.
pub(super) const SMALL_FILES: u64 = 32;
pub(super) const SMALL_BYTES: usize = 512;

/// Work, and the meaning of a line's number and of the answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Job {
    /// A personality of Filebench for so many seconds; operations per second.
    Personality {
        name: String,
        files: usize,
        mean_bytes: u64,
        threads: usize,
    },
    /// Small files made, written, synced and closed for so many seconds; microseconds of a turn.
    SmallWrite,
    /// Small files opened, read and closed for so many seconds; microseconds of a turn.
    SmallRead,
    /// The first overwrites of the file with this number, which has so many bytes; microseconds of
    /// the longest, which attaches the file. The process keeps all files open.
    Attach { file_bytes: u64 },
}

/// The result of one line.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Answer {
    pub(super) value: f64,
    /// Whether the kernel had nothing to do with the last operations; of [`Job::Attach`] only.
    pub(super) is_direct: bool,
}

impl Answer {
    fn of(value: f64) -> Answer {
        Answer {
            value,
            is_direct: false,
        }
    }
}

/// In the process: works until stdin ends. The arguments are the job as JSON, and the directory.
pub(crate) fn serve(arguments: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let [job, directory] = <[OsString; 2]>::try_from(arguments).map_err(|_| "two arguments")?;
    let job: Job = serde_json::from_str(&job.to_string_lossy())?;
    let mut work = Work::make(job, directory.into())?;
    tell(Answer::of(0.0))?;
    for line in io::stdin().lines() {
        tell(work.once(line?.parse()?)?)?;
    }
    Ok(())
}

fn tell(answer: Answer) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    Ok(out.flush()?)
}

/// A job, made ready.
enum Work {
    Personality {
        set: Box<FileSet>,
        target: Directory,
        threads: usize,
        /// Each slice goes on with other files.
        seed: u64,
    },
    SmallWrite(PathBuf),
    SmallRead(PathBuf),
    Attach {
        directory: PathBuf,
        file_bytes: u64,
        open: Vec<File>,
    },
}

impl Work {
    fn make(job: Job, directory: PathBuf) -> Result<Work, Box<dyn Error>> {
        const SEED: u64 = 1;
        Ok(match job {
            Job::Personality {
                name,
                files,
                mean_bytes,
                threads,
            } => {
                let personality: Personality = name.parse()?;
                let set = Box::new(FileSet::plan(personality, files, mean_bytes, SEED));
                let target = Directory::new(directory, "directory");
                set.populate(&target)?;
                Work::Personality {
                    set,
                    target,
                    threads,
                    seed: SEED,
                }
            }
            Job::SmallWrite => Work::SmallWrite(directory),
            Job::SmallRead => {
                write_small(&directory)?;
                Work::SmallRead(directory)
            }
            Job::Attach { file_bytes } => Work::Attach {
                directory,
                file_bytes,
                open: Vec::new(),
            },
        })
    }

    fn once(&mut self, number: f64) -> Result<Answer, Box<dyn Error>> {
        match self {
            Work::Personality {
                set,
                target,
                threads,
                seed,
            } => {
                *seed += 1;
                let begin = Instant::now();
                let stop = Stop::After(Duration::from_secs_f64(number));
                let outcome = run(target, set, *threads, stop, *seed)?;
                // Its own rate leaves out the time in which the servers have the processors.
                let seconds = begin.elapsed().as_secs_f64();
                Ok(Answer::of(outcome.operations as f64 / seconds))
            }
            Work::SmallWrite(directory) => {
                let turn = || {
                    let microseconds = write_small(directory)?;
                    for number in 0..SMALL_FILES {
                        std::fs::remove_file(small(directory, number))?;
                    }
                    Ok(microseconds)
                };
                Ok(Answer::of(mean_turn(number, turn)?))
            }
            Work::SmallRead(directory) => {
                Ok(Answer::of(mean_turn(number, || read_small(directory))?))
            }
            Work::Attach {
                directory,
                file_bytes,
                open,
            } => {
                let path = attached(directory, number as u64);
                let file = File::options().read(true).write(true).open(path)?;
                let answer = attach(&file, *file_bytes)?;
                open.push(file);
                Ok(answer)
            }
        }
    }
}

/// Mean of the turns that fit into so many seconds.
fn mean_turn(seconds: f64, mut turn: impl FnMut() -> io::Result<f64>) -> io::Result<f64> {
    let begin = Instant::now();
    let (mut sum, mut turns) = (0.0, 0);
    while turns == 0 || begin.elapsed().as_secs_f64() < seconds {
        sum += turn()?;
        turns += 1;
    }
    Ok(sum / f64::from(turns))
}

fn small(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("small-{number}"))
}

/// Microseconds to make the small files.
fn write_small(directory: &Path) -> io::Result<f64> {
    let content = [0x5a; SMALL_BYTES];
    let begin = Instant::now();
    for number in 0..SMALL_FILES {
        let mut file = File::create_new(small(directory, number))?;
        file.write_all(&content)?;
        file.sync_all()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// Microseconds to read them.
fn read_small(directory: &Path) -> io::Result<f64> {
    let mut content = [0; SMALL_BYTES];
    let begin = Instant::now();
    for number in 0..SMALL_FILES {
        File::open(small(directory, number))?.read_exact(&mut content)?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// The path of a file that is attached.
pub(super) fn attached(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("attached-{number}"))
}

/// The longest of the first overwrites of a file, and whether the next ones are direct.
fn attach(file: &File, file_bytes: u64) -> io::Result<Answer> {
    /// One of them attaches the file, and all after it are direct.
    const FIRST: u64 = 32;
    let (mut page, mut places) = (Page::filled(), Places::new(file_bytes));
    let block = BLOCK_BYTES as u64;
    let mut overwrite = |number| {
        page.number(number);
        let offset = places.below(file_bytes / block) * block;
        let begin = Instant::now();
        file.write_all_at(&page.0, offset)?;
        Ok::<f64, io::Error>(begin.elapsed().as_secs_f64() * 1e6)
    };
    let mut longest = 0.0_f64;
    for number in 0..FIRST {
        longest = longest.max(overwrite(number)?);
    }
    // Counting makes calls by itself.
    let before = kernel_calls();
    let between = kernel_calls();
    for number in 0..FIRST {
        overwrite(number)?;
    }
    let calls = (kernel_calls() - between).saturating_sub(between - before);
    Ok(Answer {
        value: longest,
        is_direct: calls < FIRST / 2,
    })
}

/// Such a process, seen from the experiment; it ends when dropped.
pub(super) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the work with this command, which has no arguments yet, and waits until it is ready.
    pub(super) fn start(
        mut command: Command,
        job: &Job,
        directory: &Path,
    ) -> Result<Worker, BenchError> {
        let text = serde_json::to_string(job).map_err(|error| failed(&error))?;
        let child = command
            .arg(ARGUMENT)
            .arg(text)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| failed(&error))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        let mut worker = Worker {
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
        };
        worker.answer()?;
        Ok(worker)
    }

    /// Works once.
    pub(super) fn work(&mut self, number: f64) -> Result<Answer, BenchError> {
        if let Some(orders) = &mut self.orders {
            writeln!(orders, "{number}").map_err(|error| failed(&error))?;
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer, BenchError> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|error| failed(&error))?;
        if line.is_empty() {
            return Err(failed(
                &"it ended; its own message, if it has one, is above",
            ));
        }
        serde_json::from_str(&line).map_err(|error| failed(&error))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

fn failed(reason: &dyn std::fmt::Display) -> BenchError {
    BenchError::program("the measured process", reason)
}
