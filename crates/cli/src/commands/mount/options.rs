//! The options of a mount, from flags and from the list after `-o`.

use crate::arguments::Mount;
use crate::failure::{Failure, Status};
use crate::lease_timeout::LeaseTimeout;
use crate::read_cache::{ReadCacheChoice, parse_threshold, parse_window};
use crate::size::parse_bytes;
use crate::tier::{DirtyAge, Percent};
use fs::{AccessTime, ReadCacheOptions, TierMode, TierOptions};
use rustix::mount::MountFlags;
use server::Mounting;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use txn::{Durability, Loading, ParseDurabilityError, ParseLoadingError};

/// Options that are true in any case, or have no meaning for a mount of memory, or are for others.
const WITHOUT_MEANING: [&str; 22] = [
    "defaults",
    "default_permissions",
    "sync",
    "async",
    "dirsync",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nodiratime",
    "diratime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "iversion",
    "noiversion",
];

#[derive(Debug)]
pub(super) struct Options {
    pub(super) foreground: bool,
    pub(super) quiet: bool,
    /// Mount nothing: `mount -f`.
    pub(super) fake: bool,
    /// Change the mount that is there.
    pub(super) remount: bool,
    pub(super) read_only: bool,
    pub(super) force_recovery: bool,
    pub(super) volatile: bool,
    pub(super) uring: bool,
    /// Switch io_uring on in this system before.
    pub(super) enable_uring: bool,
    pub(super) direct: bool,
    pub(super) in_place: bool,
    pub(super) lease_timeout: LeaseTimeout,
    /// Of a pool of class `log`.
    pub(super) durability: Durability,
    pub(super) loading: Loading,
    pub(super) threads: usize,
    /// `None`: as the server thinks right for this user.
    pub(super) allow_other: Option<bool>,
    pub(super) access_time: AccessTime,
    pub(super) log: Option<PathBuf>,
    pub(super) read_cache: ReadCacheOptions,
    /// The disk below, if not where the pool says.
    pub(super) home: Option<PathBuf>,
    pub(super) tier: TierOptions,
    /// `nosuid`, `nodev`, `noexec`
    pub(super) restrictions: MountFlags,
    /// `suid`, `dev`: these work on the mount even if an ordinary user owns the pool.
    pub(super) lifted: MountFlags,
}

impl Options {
    pub(super) fn parse(arguments: &Mount) -> Result<Options, Failure> {
        let mut options = Options {
            foreground: arguments.foreground,
            quiet: arguments.quiet,
            fake: false,
            remount: false,
            read_only: arguments.read_only,
            force_recovery: arguments.force_recovery,
            volatile: arguments.volatile,
            uring: !arguments.no_uring,
            enable_uring: arguments.enable_uring,
            direct: !arguments.no_direct,
            in_place: arguments.in_place,
            lease_timeout: arguments.lease_timeout,
            durability: arguments.durable,
            loading: arguments.load,
            threads: arguments.threads,
            allow_other: None,
            access_time: AccessTime::default(),
            log: arguments.log.clone(),
            read_cache: ReadCacheOptions {
                mode: arguments.read_cache.mode,
                budget_bytes: arguments.read_cache.budget_bytes,
                threshold: arguments.read_cache_threshold,
                window_ms: arguments.read_cache_window,
            },
            home: arguments.home.clone(),
            tier: TierOptions {
                mode: TierMode::Threads,
                dirty_max_percent: arguments.dirty_max.0,
                dirty_age: arguments.dirty_age.0,
                rate_max: arguments.home_rate,
            },
            restrictions: MountFlags::empty(),
            lifted: MountFlags::empty(),
        };
        for option in arguments.options.iter().filter(|option| !option.is_empty()) {
            options.apply(option)?;
        }
        if options.enable_uring && !options.uring {
            let message = "--enable-uring makes no sense with --no-uring; leave one out";
            return Err(Failure::new(Status::Usage, message));
        }
        if options.in_place && !options.direct {
            let message = "--in-place makes no sense with --no-direct: only direct writes overwrite in place; leave one out";
            return Err(Failure::new(Status::Usage, message));
        }
        Ok(options)
    }

    /// The same for the server.
    pub(super) fn mounting(&self, pool: &Path, mountpoint: &Path) -> Mounting {
        let mut mounting = Mounting::new(pool, mountpoint);
        mounting.read_only = self.read_only;
        mounting.threads = self.threads;
        mounting.allow_other = self.allow_other;
        mounting.restrictions = self.restrictions;
        mounting.lifted = self.lifted;
        mounting.uring = self.uring;
        mounting.direct = self.direct;
        mounting.in_place = self.in_place;
        mounting.lease_timeout = self.lease_timeout.0;
        mounting
    }

    fn apply(&mut self, option: &str) -> Result<(), Failure> {
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        let no_number = |_| nonsense(option, "give a number; 0 = one for each core");
        match (name, value) {
            ("ro" | "rw", None) => self.read_only = name == "ro",
            ("force_recovery", None) => self.force_recovery = true,
            ("volatile", None) => self.volatile = true,
            ("uring" | "no_uring" | "enable_uring", None) => self.apply_transport(name),
            ("direct", None) => self.direct = true,
            ("no_direct", None) => self.direct = false,
            ("in_place", None) => self.in_place = true,
            ("fake", None) => self.fake = true,
            ("remount", None) => self.remount = true,
            ("foreground", None) => self.foreground = true,
            ("allow_other", None) => self.allow_other = Some(true),
            ("noatime", None) => self.access_time = AccessTime::Never,
            ("relatime", None) => self.access_time = AccessTime::Relative,
            ("strictatime" | "atime", None) => self.access_time = AccessTime::Strict,
            ("nosuid", None) => self.restrict(MountFlags::NOSUID),
            ("nodev", None) => self.restrict(MountFlags::NODEV),
            ("noexec", None) => self.restrict(MountFlags::NOEXEC),
            ("suid", None) => self.lift(MountFlags::NOSUID),
            ("dev", None) => self.lift(MountFlags::NODEV),
            ("exec", None) => self.lift(MountFlags::NOEXEC),
            ("threads", Some(value)) => self.threads = value.parse().map_err(no_number)?,
            ("lease_timeout" | "durable" | "load", Some(value)) => self
                .apply_time(name, value)
                .map_err(|reason| nonsense(option, &reason))?,
            ("log", Some(value)) => self.log = Some(PathBuf::from(value)),
            ("read_cache" | "read_cache_threshold" | "read_cache_window", Some(value)) => self
                .apply_to_read_cache(name, value)
                .map_err(|reason| nonsense(option, &reason))?,
            ("home", Some(value)) => self.home = Some(PathBuf::from(value)),
            ("dirty_max" | "dirty_age" | "home_rate", Some(value)) => self
                .apply_to_tier(name, value)
                .map_err(|reason| nonsense(option, &reason))?,
            (name, None) if WITHOUT_MEANING.contains(&name) => {}
            (name, _) if name.starts_with("x-") || name == "comment" => {}
            _ => return Err(refused(option)),
        }
        Ok(())
    }

    fn apply_transport(&mut self, name: &str) {
        match name {
            "enable_uring" => self.enable_uring = true,
            _ => self.uring = name == "uring",
        }
    }

    fn restrict(&mut self, restriction: MountFlags) {
        self.restrictions |= restriction;
        self.lifted -= restriction;
    }

    fn lift(&mut self, restriction: MountFlags) {
        self.lifted |= restriction;
        self.restrictions -= restriction;
    }

    fn apply_time(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "lease_timeout" => self.lease_timeout = value.parse()?,
            "load" => {
                let parsed = value.parse();
                self.loading = parsed.map_err(|error: ParseLoadingError| error.to_string())?;
            }
            _ => {
                let parsed = value.parse();
                self.durability =
                    parsed.map_err(|error: ParseDurabilityError| error.to_string())?;
            }
        }
        Ok(())
    }

    fn apply_to_tier(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "dirty_max" => self.tier.dirty_max_percent = value.parse::<Percent>()?.0,
            "dirty_age" => self.tier.dirty_age = value.parse::<DirtyAge>()?.0,
            _ => self.tier.rate_max = parse_bytes(value)?,
        }
        Ok(())
    }

    fn apply_to_read_cache(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "read_cache_threshold" => self.read_cache.threshold = parse_threshold(value)?,
            "read_cache_window" => self.read_cache.window_ms = parse_window(value)?,
            _ => {
                let choice: ReadCacheChoice = value.parse()?;
                self.read_cache.mode = choice.mode;
                self.read_cache.budget_bytes = choice.budget_bytes;
            }
        }
        Ok(())
    }

    fn tier_words(&self) -> [String; 3] {
        let tier = &self.tier;
        [
            format!("dirty_max={}", Percent(tier.dirty_max_percent)),
            format!("dirty_age={}", DirtyAge(tier.dirty_age)),
            format!("home_rate={}", tier.rate_max),
        ]
    }

    /// The command line that leads to the same options, for the background server. Tries the log, where a wrong name
    /// can still be told, and makes it absolute.
    pub(super) fn to_arguments(&self) -> Result<Vec<OsString>, Failure> {
        let mut list = vec![match self.access_time {
            AccessTime::Never => "noatime".to_owned(),
            AccessTime::Relative => "relatime".to_owned(),
            AccessTime::Strict => "strictatime".to_owned(),
        }];
        let flags = [
            (self.read_only, "ro"),
            (self.force_recovery, "force_recovery"),
            (self.volatile, "volatile"),
            (!self.uring, "no_uring"),
            (self.enable_uring, "enable_uring"),
            (!self.direct, "no_direct"),
            (self.in_place, "in_place"),
            (self.allow_other == Some(true), "allow_other"),
            (self.restrictions.contains(MountFlags::NOSUID), "nosuid"),
            (self.restrictions.contains(MountFlags::NODEV), "nodev"),
            (self.restrictions.contains(MountFlags::NOEXEC), "noexec"),
            (self.lifted.contains(MountFlags::NOSUID), "suid"),
            (self.lifted.contains(MountFlags::NODEV), "dev"),
        ];
        list.extend(
            flags
                .iter()
                .filter(|(set, _)| *set)
                .map(|(_, name)| (*name).to_owned()),
        );
        list.push(format!("threads={}", self.threads));
        list.push(format!("lease_timeout={}", self.lease_timeout));
        list.push(format!("durable={}", self.durability));
        list.push(format!("load={}", self.loading));
        let cache = &self.read_cache;
        let choice = ReadCacheChoice {
            mode: cache.mode,
            budget_bytes: cache.budget_bytes,
        };
        list.push(format!("read_cache={choice}"));
        list.push(format!("read_cache_threshold={}", cache.threshold));
        let window_seconds = f64::from(cache.window_ms) / 1000.0;
        list.push(format!("read_cache_window={window_seconds}"));
        list.extend(self.tier_words());
        let mut arguments = vec![OsString::from("-o"), OsString::from(list.join(","))];
        if let Some(home) = &self.home {
            // The server has another working directory.
            let home = std::path::absolute(home).map_err(Failure::io("name", home))?;
            arguments.extend([OsString::from("--home"), home.into_os_string()]);
        }
        if let Some(log) = &self.log {
            super::daemon::open_log(log)?;
            let log = log
                .canonicalize()
                .map_err(Failure::io("find the log", log))?;
            arguments.extend([OsString::from("--log"), log.into_os_string()]);
        }
        Ok(arguments)
    }
}

fn refused(option: &str) -> Failure {
    Failure::new(
        Status::Usage,
        format_args!("mount option `{option}` is not known; see perdure mount --help"),
    )
}

fn nonsense(option: &str, reason: &str) -> Failure {
    Failure::new(
        Status::Usage,
        format_args!("mount option `{option}` makes no sense: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use fs::ReadCacheMode;

    fn parse(words: &str) -> Result<Options, Failure> {
        let words = ["perdure", "mount", "/pool", "/mnt"]
            .into_iter()
            .chain(words.split(' ').filter(|word| !word.is_empty()));
        match Arguments::try_parse_from(words)
            .expect("a valid command line")
            .command
        {
            Command::Mount(arguments) => Options::parse(&arguments),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn later_options_win() {
        let options =
            parse("-o ro,noatime,threads=3 -o rw,nosuid,nodev,suid").expect("known options");
        assert!(!options.read_only);
        assert_eq!(options.access_time, AccessTime::Never);
        assert_eq!(options.threads, 3);
        assert_eq!(options.restrictions, MountFlags::NODEV);
        assert_eq!(options.lifted, MountFlags::NOSUID);
    }

    #[test]
    fn the_background_server_gets_the_same_options() {
        for words in [
            "-o ro,noatime,allow_other,noexec --threads 2 --volatile",
            "-o suid,dev",
            "-o suid,dev,nodev",
            "",
            "--read-cache off",
            "--in-place",
            "-o in_place",
            "--no-uring",
            "--enable-uring",
            "-o enable_uring,no_uring,uring",
            "--no-direct",
            "-o no_direct,direct",
            "-o no_direct",
            "--lease-timeout 0",
            "-o lease_timeout=2.5",
            "--durable call",
            "-o durable=fsync:20ms",
            "--read-cache on,2G --read-cache-threshold 63 --read-cache-window 0.125",
            "-o read_cache=3M,read_cache_threshold=1,read_cache_window=86400",
        ] {
            let options = parse(words).expect("known options");
            let arguments = options.to_arguments().expect("no log to open");
            let words: Vec<_> = arguments
                .iter()
                .map(|word| word.to_string_lossy())
                .collect();
            let again = parse(&words.join(" ")).expect("known options");
            assert_eq!(format!("{again:?}"), format!("{options:?}"));
        }
    }

    #[test]
    fn the_read_cache_is_chosen_by_flag_or_option() {
        let chosen = |words| parse(words).expect("known options").read_cache;
        let standard = ReadCacheOptions {
            mode: ReadCacheMode::Auto,
            budget_bytes: 0,
            threshold: 2,
            window_ms: 10_000,
        };
        assert_eq!(chosen(""), standard);
        let wanted = ReadCacheOptions {
            mode: ReadCacheMode::On,
            budget_bytes: 2 << 30,
            threshold: 5,
            window_ms: 1500,
        };
        for words in [
            "--read-cache on,2G --read-cache-threshold 5 --read-cache-window 1.5",
            "--read-cache on:2G --read-cache-threshold 5 --read-cache-window 1.5",
            "-o read_cache=on:2G,read_cache_threshold=5,read_cache_window=1.5",
            "--read-cache off -o read_cache=off,read_cache=on:2048M -o read_cache_threshold=5,read_cache_window=1.5",
        ] {
            assert_eq!(chosen(words), wanted, "{words}");
        }
        for option in [
            "read_cache=fast",
            "read_cache=",
            "read_cache_threshold=64",
            "read_cache_window=0",
        ] {
            let failure = parse(&format!("-o {option}")).expect_err(option);
            assert_eq!(failure.status, Status::Usage, "{option}");
            let message = format!("{failure:?}");
            assert!(
                message.contains(option) && message.contains("give "),
                "{message}"
            );
        }
        assert!(parse("-o read_cache").is_err());
    }

    #[test]
    fn the_lease_timeout_is_chosen_by_flag_or_option() {
        let chosen = |words| parse(words).expect("known options").lease_timeout.0;
        assert_eq!(chosen(""), Some(server::LEASE_TIMEOUT));
        assert_eq!(chosen("--lease-timeout 0"), None);
        let half = Some(std::time::Duration::from_millis(500));
        assert_eq!(chosen("--lease-timeout 9 -o lease_timeout=0.5"), half);
        let failure = parse("-o lease_timeout=-1").expect_err("no such time");
        assert_eq!(failure.status, Status::Usage);
        let message = format!("{failure:?}");
        assert!(message.contains("lease_timeout=-1") && message.contains("give seconds"));
    }

    #[test]
    fn unknown_options_are_refused() {
        for option in [
            "-o blocksize=4",
            "-o threads",
            "-o threads=many",
            "-o ro=1",
            "-o encrypt",
            "-o durable=never",
            "-o no_direct,in_place",
            "--no-direct -o in_place",
        ] {
            let failure = parse(option).expect_err(option);
            assert_eq!(failure.status, Status::Usage, "{option}");
        }
        assert!(parse("-o x-systemd.automount,_netdev,defaults,silent,iversion").is_ok());
        let message = format!("{:?}", parse("-o threads=abc").expect_err("no number"));
        assert!(message.contains("makes no sense"), "{message}");
    }
}
