//! The program `filebench`, with its own scripts.

use super::bed::command;
use crate::error::BenchError;
use crate::personality::Personality;
use crate::programs::{find, run};
use std::path::{Path, PathBuf};

/// Where installations keep the scripts.
const SCRIPTS: [&str; 3] = [
    "/usr/share/filebench/workloads",
    "/usr/local/share/filebench/workloads",
    "/usr/share/doc/filebench/workloads",
];

/// An installed program and its scripts.
#[derive(Clone)]
pub(super) struct Filebench {
    program: PathBuf,
    scripts: PathBuf,
}

/// A file set, as scripts have its parameters.
#[derive(Clone, Copy)]
pub(super) struct Set<'a> {
    pub(super) directory: &'a Path,
    pub(super) files: usize,
    pub(super) mean_bytes: u64,
    pub(super) threads: usize,
}

impl Filebench {
    /// `None` if it is not installed.
    pub(super) fn find() -> Option<Filebench> {
        let program = find("filebench", "filebench").ok()?;
        let scripts = SCRIPTS.map(PathBuf::from);
        let scripts = scripts.into_iter().find(|folder| folder.is_dir())?;
        Some(Filebench { program, scripts })
    }

    /// Operations per second of one run.
    pub(super) fn rate(
        &self,
        personality: Personality,
        set: Set<'_>,
        library: Option<&Path>,
        seconds: f64,
    ) -> Result<f64, BenchError> {
        let path = self.scripts.join(format!("{personality}.f"));
        let script = std::fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
        // The program counts whole seconds.
        let seconds = seconds.ceil().max(1.0) as u64;
        let place = tempfile::tempdir().map_err(BenchError::io("make a directory for", &path))?;
        let path = place.path().join("script.f");
        std::fs::write(&path, adapted(&script, set, seconds))
            .map_err(BenchError::io("write", &path))?;
        // Its processes map memory at one address, which random addresses take from them.
        let setarch = find("setarch", "util-linux")?;
        let mut command = command(&setarch, library);
        command.arg("-R").arg(&self.program).arg("-f").arg(&path);
        let output = run("filebench", &mut command)?;
        rate_in(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| BenchError::program("filebench", "its report has no rate"))
    }
}

/// The script with other parameters.
fn adapted(script: &str, set: Set<'_>, seconds: u64) -> String {
    let values = [
        ("dir", set.directory.display().to_string()),
        ("nfiles", set.files.to_string()),
        ("nthreads", set.threads.to_string()),
        ("filesize", set.mean_bytes.to_string()),
        ("meanfilesize", set.mean_bytes.to_string()),
    ];
    let line = |line: &str| {
        let named = |(name, _): &&(&str, String)| line.starts_with(&format!("set ${name}="));
        match values.iter().find(named) {
            // Some scripts draw the sizes from a distribution.
            Some((name, _)) if line.contains("cvar(") => {
                format!("set ${name}={}\n", gamma(set.mean_bytes))
            }
            Some((name, value)) => format!("set ${name}={value}\n"),
            None if line.starts_with("run ") => format!("run {seconds}\n"),
            None => format!("{line}\n"),
        }
    };
    script.lines().map(line).collect()
}

fn gamma(mean_bytes: u64) -> String {
    format!("cvar(type=cvar-gamma,parameters=mean:{mean_bytes};gamma:1.5)")
}

/// `12.345: IO Summary: 123456 ops 12345.678 ops/s …`
fn rate_in(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("IO Summary:"))?;
    let (before, _) = line.split_once(" ops/s")?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Set, adapted, rate_in};
    use std::path::Path;

    #[test]
    fn a_script_gets_other_parameters() {
        let script = "set $dir=/tmp\nset $nfiles=1000\nset $meandirwidth=20\n\
            set $filesize=cvar(type=cvar-gamma,parameters=mean:131072;gamma:1.5)\n\
            set $nthreads=50\nset $iosize=1m\nrun 60\n";
        let set = Set {
            directory: Path::new("/mnt/set"),
            files: 8192,
            mean_bytes: 16384,
            threads: 8,
        };
        assert_eq!(
            adapted(script, set, 2),
            "set $dir=/mnt/set\nset $nfiles=8192\nset $meandirwidth=20\n\
            set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)\n\
            set $nthreads=8\nset $iosize=1m\nrun 2\n"
        );
    }

    #[test]
    fn the_rate_is_found_in_the_report() {
        let report = "62.1: IO Summary: 540321 ops 9005.217 ops/s 692/1385 rd/wr 231.5mb/s\n";
        assert_eq!(rate_in(report), Some(9005.217));
        assert_eq!(rate_in("nothing"), None);
    }
}
