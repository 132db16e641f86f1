//! pgbench on a mount.

use super::LogOptions;
use super::bed::{Bed, MountedPool, Sides};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::programs::{find, run};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PACKAGE: &str = "postgresql";
const USER: &str = "postgres";

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.row("pgbench", || {
        bed.ext4()?;
        let programs = Programs::find()?;
        let mount = bed.mount(options)?;
        pgbench(options, bed, mount, &programs)
    });
}

/// Where PostgreSQL's programs are, and the user that they run as.
struct Programs {
    /// Directory of the version's own ones, which Debian does not link to.
    server: PathBuf,
    client: PathBuf,
    user: u32,
    group: u32,
}

impl Programs {
    fn find() -> Result<Programs, BenchError> {
        let missing = |program| BenchError::NotInstalled {
            program,
            package: PACKAGE,
        };
        let versions = std::fs::read_dir("/usr/lib/postgresql");
        let versions = versions.into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
        folders.extend(find("postgres", PACKAGE).ok().and_then(|path| {
            let path = path.canonicalize().ok()?;
            path.parent().map(Path::to_path_buf)
        }));
        folders.retain(|folder| folder.join("initdb").is_file());
        folders.sort();
        let server = folders.pop().ok_or_else(|| missing("postgres"))?;
        let (user, group) = ordinary_user();
        Ok(Programs {
            server,
            client: find("pgbench", PACKAGE)?,
            user,
            group,
        })
    }

    /// A command that does not run as root, which PostgreSQL refuses.
    fn command(&self, program: &Path, home: &Path) -> Command {
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command.uid(self.user).gid(self.group);
        }
        command
            .current_dir(home)
            .env("HOME", home)
            .env("PGHOST", home);
        command
            .env("PGUSER", USER)
            .env("PGDATABASE", USER)
            .env("LC_ALL", "C");
        command.stdin(Stdio::null());
        command
    }

    /// A new directory of that user.
    fn directory(&self, path: &Path) -> Result<(), BenchError> {
        std::fs::create_dir(path).map_err(BenchError::io("make", path))?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o700))
            .map_err(BenchError::io("close to other users", path))?;
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        chown(path, Some(self.user), Some(self.group)).map_err(BenchError::io("give away", path))
    }
}

/// Numbers of the user `nobody` and its group.
fn ordinary_user() -> (u32, u32) {
    const USUAL: (u32, u32) = (65534, 65534);
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| line.starts_with("nobody:"));
    let number = |field| line?.split(':').nth(field)?.parse().ok();
    number(2).zip(number(3)).unwrap_or(USUAL)
}

/// A running server, ended when dropped.
struct Postgres<'p> {
    programs: &'p Programs,
    child: Child,
    /// Holds its socket.
    home: PathBuf,
}

impl Postgres<'_> {
    /// Starts a server on new data.
    fn start<'p>(
        programs: &'p Programs,
        data: &Path,
        home: PathBuf,
    ) -> Result<Postgres<'p>, BenchError> {
        programs.directory(data)?;
        programs.directory(&home)?;
        let mut init = programs.command(&programs.server.join("initdb"), &home);
        init.arg("-D").arg(data).args(["-U", USER, "-A", "trust"]);
        run(
            "initdb",
            init.args(["--no-locale", "-E", "UTF8", "--no-sync"]),
        )?;
        let child = programs
            .command(&programs.server.join("postgres"), &home)
            .arg("-D")
            .arg(data)
            .arg("-k")
            .arg(&home)
            .args(["-c", "listen_addresses=", "-c", "fsync=on"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| BenchError::program("postgres", error))?;
        let postgres = Postgres {
            programs,
            child,
            home,
        };
        postgres.fill()?;
        Ok(postgres)
    }

    /// Makes pgbench's tables, as soon as the server answers.
    fn fill(&self) -> Result<(), BenchError> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let start = Instant::now();
        loop {
            let filled = run("pgbench", self.pgbench().args(["-q", "-i", "-s", "1"]));
            if filled.is_ok() || start.elapsed() > PATIENCE {
                return filled.map(|_| ());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn pgbench(&self) -> Command {
        self.programs.command(&self.programs.client, &self.home)
    }

    /// Transactions per second of one client.
    fn rate(&self, transactions: u64) -> Result<f64, BenchError> {
        let mut command = self.pgbench();
        command.args(["-n", "-c", "1", "-t", &transactions.to_string()]);
        let output = run("pgbench", &mut command)?;
        rate_in(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| BenchError::program("pgbench", "its report has no rate"))
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        // At once, with the processes that it has started.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
    }
}

/// `tps = 2043.117 (without initial connection time)`
fn rate_in(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("tps = "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// One client with the usual transactions, which overwrite balances in three tables.
fn pgbench(
    options: &LogOptions,
    bed: &Bed,
    mount: &MountedPool,
    programs: &Programs,
) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 500.0;
    let sides = Sides::make(bed, mount, "postgres")?;
    let mut started = Vec::new();
    for (number, directory) in sides.directories.iter().enumerate() {
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("open to all users", directory))?;
        let home = bed.place().join(format!("postgres-{number}"));
        started.push(Postgres::start(programs, &directory.join("data"), home)?);
    }
    let transactions = options.amount(PER_SECOND);
    sides.compare(options.program_runs, |side, _| {
        started[side].rate(transactions)
    })
}

#[cfg(test)]
mod tests {
    use super::rate_in;

    #[test]
    fn the_rate_is_found_in_the_report() {
        let report =
            "latency average = 0.489 ms\ntps = 2043.117 (without initial connection time)\n";
        assert_eq!(rate_in(report), Some(2043.117));
        assert_eq!(rate_in("nothing"), None);
    }
}
