//! The command line of `perdure bench`.

use crate::size::parse_bytes;
use bench::Personality;
use clap::{Args, Subcommand};
use pmem::MediaModel;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perdure bench ops
  perdure bench aging --files 8192,32768 --out report
  perdure bench wear --out report
  perdure bench readcache --out report
  perdure bench direct --out report
  perdure bench log --out report
  perdure bench mount --enable-uring --out report")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

/// Experiments that `bench` knows.
#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Single operations of the library against bare memory and tmpfs
    Ops(Ops),
    /// Throughput over files, threads and age, against a published file system and others
    Aging(Aging),
    /// Where on the medium the writes go, against a published file system
    Wear(Wear),
    /// What copies of hot blocks in DRAM give, and what they cost, on an emulated medium
    Readcache(ReadCache),
    /// Unchanged programs whose reads and writes go past the kernel, against tmpfs and the plain mount
    Direct(Direct),
    /// Pools that a log on an ordinary disk makes durable, against the file system that they lie on
    Log(Log),
    /// The mount over io_uring against the mount over the kernel's classic queue
    Mount(Mount),
}

/// What all experiments have in common.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory in which pools are made and removed again
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) pool: PathBuf,
    /// Only this row; can be given several times
    #[arg(long = "row", value_name = "NAME")]
    pub(crate) rows: Vec<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  perdure bench ops\n  perdure bench ops --media optane,read=300 --row read_4k --json"
)]
pub(crate) struct Ops {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Medium to emulate: dram, optane, pcm, cxl, changed or made by read=NS, write=NS, readbw=BYTES, writebw=BYTES
    #[arg(long, default_value = "dram")]
    pub(crate) media: MediaModel,
    /// Size of the pool
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "2G")]
    pub(crate) size: u64,
    /// Measure latencies of single operations too
    #[arg(long)]
    pub(crate) latencies: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The Filebench personalities fileserver, webproxy, webserver and varmail run with the parameters of the SanGuo paper (I/O of 512 bytes, file
sets of half the pool): over the number of files (its Fig. 8) and of threads (its Fig. 9), on the library and on PMFS's policies in
turn; then with a million files on the library. A pool that was filled to 75 % with the files of a real tree and has turned over ten
times its size is compared with a fresh one. At the end the personalities run side by side on the library, the FUSE
mount, tmpfs and ext4 on a loop device (as root).

It takes 12 GiB of memory at --size 4G, and 17 GiB with a million files. With --files 8192,32768 --rounds 3, all other
rows take eight minutes.

With --target the personalities run in that directory, whatever file system it is, and nothing else is measured.

Examples:
  perdure bench aging --out report
  perdure bench aging --files 8192,32768 --personality varmail --row varmail_32k
  perdure bench aging --files 8192 --size 1G --target /mnt --json")]
pub(crate) struct Aging {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Medium to emulate: dram, optane, pcm, cxl, changed or made by read=NS, write=NS, readbw=BYTES, writebw=BYTES
    #[arg(long, default_value = "dram")]
    pub(crate) media: MediaModel,
    /// Size of a pool; the one for a million files is three times as large
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4G")]
    pub(crate) size: u64,
    /// Numbers of files, from the least, which has the rows _8k, to the greatest, which has the rows _1m
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "8192,32768,1000000"
    )]
    pub(crate) files: Vec<usize>,
    /// Personalities to run [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) personality: Vec<Personality>,
    /// Numbers of threads; all but the rows threads_… run with the greatest
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    pub(crate) threads: Vec<usize>,
    /// Rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Length of each side of a round
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub(crate) seconds: f64,
    /// Run the personalities in this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Option<PathBuf>,
    /// Write aging.json and aging.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The Filebench personalities run with one thread, the same operations on the library and on PMFS's policies; every byte that goes to the
medium is counted by the mapped region, in 128 intervals (Fig. 7 of the SanGuo paper). Then the library goes on until the
pool was written several times over.

It takes 4 GiB of memory at --size 4G, and some ten minutes.

Examples:
  perdure bench wear --out report
  perdure bench wear --personality webproxy --passes 10 --json")]
pub(crate) struct Wear {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Size of the pool
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4G")]
    pub(crate) size: u64,
    /// Number of files; together they take half of the pool
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub(crate) files: usize,
    /// Personalities to run [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) personality: Vec<Personality>,
    /// How many times the size of the pool is written in the long run
    #[arg(long, value_name = "N", default_value_t = 4.0)]
    pub(crate) passes: f64,
    /// Write wear.json and wear.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Reads and writes of 4 KiB on an emulated medium, without the read cache, with it, and with a page cache over the file system: section 4
of the RCache paper (its Fig. 4 and 5, and FxMark's DRBL, DRBM and DWAL), and bars for what a hit gives and for what everything else
may cost.

It takes 2 GiB of memory at --size 512M, and some minutes.

Examples:
  perdure bench readcache --out report
  perdure bench readcache --media cxl --row hot_seq --row miss --json")]
pub(crate) struct ReadCache {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory in which pools are made, as files without names [default: none, pools are memory of this process]
    #[arg(long, value_name = "DIR")]
    pub(crate) pool: Option<PathBuf>,
    /// Only this row, and no figures of the paper; can be given several times
    #[arg(long = "row", value_name = "NAME")]
    pub(crate) rows: Vec<String>,
    /// Medium to emulate: dram, optane, pcm, cxl, changed or made by read=NS, write=NS, readbw=BYTES, writebw=BYTES
    #[arg(long, default_value = "optane")]
    pub(crate) media: MediaModel,
    /// Size of a pool
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "512M")]
    pub(crate) size: u64,
    /// Size of the file that is read and written: at most a quarter of the pool
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64M")]
    pub(crate) file_size: u64,
    /// DRAM for copies; twice as much where two threads have a file each
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "128M")]
    pub(crate) cache_size: u64,
    /// Numbers of threads of FxMark
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<usize>,
    /// Rounds of each measurement; a quarter of them with each pool where there are several
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub(crate) rounds: usize,
    /// Length of each side of a round where threads run; elsewhere a side is some thousand requests
    #[arg(long, value_name = "SECONDS", default_value_t = 0.05)]
    pub(crate) seconds: f64,
    /// Write readcache.json and readcache.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Loops of single operations, fio, redis, sqlite and RocksDB run with the library of `perdure run` on
a mount, without it on the same mount, and on tmpfs, in rounds that alternate. A program that is not
installed leaves its rows out. Beside them, without a bar, what an overwrite costs on a mount with
--in-place and on one without (--row in_place); what reading a mapped file costs (--row mmap_read); and
the cost of software: how much of an access to 4 KiB is the medium, and how much copying, crossing and
the file system; with ext4 on a loop device as root.

It takes 5 GiB of memory, and ten minutes or more.

Examples:
  perdure bench direct --out report
  perdure bench direct --row overwrite_4k --row redis_set --seconds 5 --json")]
pub(crate) struct Direct {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Length of a measurement: all rounds of a loop, one run of fio, about one run of another program
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Write direct.json and direct.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Durable appends, creations, redis, RocksDB, sqlite and PostgreSQL on a mounted pool, against the ext4
that the pool lies on: journaled, with default options, on a loop device whose image is a file in
--pool; with xfs for the report. Single operations of the library against durable writes of the disk and
against a volatile pool; what operations log; what a checkpoint costs; and how long a recovery takes
after a power failure. All sides of a row alternate.

ext4 needs root. Without it the rows of mounts are absent, and pools lie on the file system of --pool.
It takes 16 GiB of disk, 4 GiB of memory, and ten minutes.

Examples:
  perdure bench log --out report
  perdure bench log --pool /mnt/disk --row append_fdatasync --row sync_vs_raw
  perdure bench log --seconds 2 --row group_16 --json")]
pub(crate) struct Log {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory on the disk to measure, in which images and pools are made and removed again
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) pool: PathBuf,
    /// Only this row; can be given several times
    #[arg(long = "row", value_name = "NAME")]
    pub(crate) rows: Vec<String>,
    /// Length of a measurement: all rounds of a row, or all runs of a program on one side
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Write log.json and log.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Two pools in memory are mounted at once, one over io_uring and one over the kernel's classic queue,
each by a server process of its own. fio, loops of system calls, tar, git, the Filebench personalities
and the servers' processor time are compared in slices that alternate; and programs with the library
of `perdure run` with the same programs without it. A program that is not installed leaves its rows
out. Rows of names that the kernel has forgotten, and git, need root.

The kernel must allow FUSE over io_uring: echo Y > /sys/module/fuse/parameters/enable_uring, or
--enable-uring. It takes 8 GiB of memory and ten minutes.

Examples:
  perdure bench mount --out report
  perdure bench mount --enable-uring --row randread_1 --row create_unlink --seconds 10 --json")]
pub(crate) struct Mount {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Length of a measurement: all slices of one side of a row
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Rounds of each row, half as many of untar, rm_rf and git_status; every side has a slice in
    /// each [default: 15]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Allow FUSE over io_uring in the kernel while this runs; then the former value is set again
    #[arg(long)]
    pub(crate) enable_uring: bool,
    /// Write mount.json and mount.html into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
