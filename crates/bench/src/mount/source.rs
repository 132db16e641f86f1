//! Rows of a source tree: unpacked, looked through by git, removed.

use super::MountOptions;
use super::bed::{Bed, Side, compare, forget_names, in_memory};
use crate::aging::pair;
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::log::tree::archive;
use crate::programs::{find, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    collector.group(&["untar", "rm_rf", "git_status"], |collector| {
        let place = in_memory(options)?;
        let archive = archive(place.path(), options.tree_files)?;
        collector.group(&["untar", "rm_rf"], |collector| {
            unpack_and_remove(collector, options, bed, &archive)
        });
        collector.row("git_status", || {
            git_status(options, bed, place.path(), &archive)
        });
        Ok(())
    });
}

/// Files per second of a program.
fn rate(options: &MountOptions, name: &str, command: &mut Command) -> Result<f64, BenchError> {
    let begin = Instant::now();
    run(name, command)?;
    Ok(options.tree_files as f64 / begin.elapsed().as_secs_f64())
}

fn unpack(tar: &Path, archive: &Path, directory: &Path) -> Command {
    let mut command = Command::new(tar);
    command.arg("-xf").arg(archive).arg("-C").arg(directory);
    command
}

/// `tar x`, and `rm -rf` of the tree.
fn unpack_and_remove(
    collector: &mut Collector,
    options: &MountOptions,
    bed: &Bed,
    archive: &Path,
) -> Result<(), BenchError> {
    let (tar, rm) = (find("tar", "tar")?, find("rm", "coreutils")?);
    collector.tell("untar, rm_rf");
    let directories = bed.directories()?;
    let mut removals = [Vec::new(), Vec::new()];
    let unpacked = compare(options.program_rounds(), |side: Side| {
        let directory = directories[side as usize].path();
        let unpacked = rate(options, "tar", &mut unpack(&tar, archive, directory))?;
        let mut command = Command::new(&rm);
        command.arg("-rf").arg(directory.join("tree"));
        removals[side as usize].push(rate(options, "rm", &mut command)?);
        Ok(unpacked)
    })?;
    let note = format!("{} files", options.tree_files);
    collector.row("untar", || Ok(with_spread(&unpacked, &note)));
    collector.row("rm_rf", || {
        // The first round only warms up.
        let removed = pair(&removals[0][1..], &removals[1][1..]);
        Ok(with_spread(&removed, &note))
    });
    Ok(())
}

/// Files per second of `git status` in a clean clone whose names the kernel has forgotten. The
/// clones' objects are in memory, so that they cost no room; all else of them is on the mounts.
fn git_status(
    options: &MountOptions,
    bed: &Bed,
    place: &Path,
    archive: &Path,
) -> Result<Found, BenchError> {
    let git = find("git", "git")?;
    forget_names()?;
    let source = commit(&git, place, archive)?;
    let directories = bed.directories()?;
    let clones = directories.each_ref().map(|it| it.path().join("clone"));
    for clone in &clones {
        let mut command = quiet(&git, place);
        command.args(["clone", "-q", "--shared"]);
        run("git clone", command.arg(&source).arg(clone))?;
    }
    let rounds = compare(options.program_rounds(), |side| {
        let mut command = quiet(&git, &clones[side as usize]);
        command.args(["status", "--porcelain"]);
        forget_names()?;
        let begin = Instant::now();
        let output = run("git status", &mut command)?;
        let seconds = begin.elapsed().as_secs_f64();
        match output.stdout.is_empty() {
            true => Ok(options.tree_files as f64 / seconds),
            false => Err(BenchError::WrongData(
                "git status finds changes in a clean clone".to_owned(),
            )),
        }
    })?;
    let note = format!("{} files", options.tree_files);
    Ok(with_spread(&rounds, &note))
}

/// A git without the user's settings, in this directory.
fn quiet(git: &Path, directory: &Path) -> Command {
    let mut command = Command::new(git);
    command
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args([
            "-c",
            "user.name=perdure",
            "-c",
            "user.email=perdure@localhost",
        ])
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0"]);
    command
}

/// A repository in memory whose only commit is the archive's tree.
fn commit(git: &Path, place: &Path, archive: &Path) -> Result<PathBuf, BenchError> {
    let tar = find("tar", "tar")?;
    run("tar", &mut unpack(&tar, archive, place))?;
    let repository = place.join("tree");
    run("git init", quiet(git, &repository).args(["init", "-q"]))?;
    // With this threshold git puts all files into one pack.
    let in_one_pack = ["-c", "core.bigFileThreshold=1", "-c", "core.compression=0"];
    let mut add = quiet(git, &repository);
    run("git add", add.args(in_one_pack).args(["add", "-A"]))?;
    let mut commit = quiet(git, &repository);
    commit.args(["commit", "-q", "-m", "all"]);
    run("git commit", &mut commit)?;
    Ok(repository)
}
