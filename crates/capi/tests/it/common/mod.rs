//! The library as a C program gets it, and compilers for C programs.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

pub(crate) const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// What `libperdure.a` needs besides itself: `cargo rustc -p perdure-capi -- --print native-static-libs`, and in perdure.pc, but for libgcc:
/// the compiler knows which one.
pub(crate) const STATIC_NEEDS: [&str; 4] = ["-lpthread", "-lm", "-ldl", "-lc"];

/// How a program is compiled and linked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Build {
    C,
    Cpp,
    Static,
}

/// A folder of the shape that `make install` makes, and a place for programs.
pub(crate) struct Installed {
    folder: TempDir,
}

/// Where cargo puts what it has built for this test.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    folder.to_owned()
}

/// Returns the folder of the library, which cargo does not build for a test of it: it is built here,
/// unless PERDURE_LIBRARIES_BUILT says that a build of everything came before (tests/run.py).
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = target();
        if std::env::var_os("PERDURE_LIBRARIES_BUILT").is_none() {
            build(&folder);
        }
        folder
    })
}

fn build(folder: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "perdure-capi", "--lib"]);
    cargo
        .arg("--target-dir")
        .arg(folder.parent().expect("a folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(CRATE).status().expect("cargo");
    assert!(status.success(), "cargo build");
}

impl Installed {
    pub(crate) fn new() -> Installed {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let link = |from: PathBuf, to: &str| {
            std::os::unix::fs::symlink(from, folder.path().join(to)).expect("symlink");
        };
        link(library().join("libperdure_c.so"), "libperdure.so.0");
        link("libperdure.so.0".into(), "libperdure.so");
        link(library().join("libperdure_c.a"), "libperdure.a");
        Installed { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn shared_object(&self) -> PathBuf {
        self.folder.path().join("libperdure.so.0")
    }

    /// Compiles a program of `tests/c`, or a file elsewhere, without a warning.
    pub(crate) fn compile(&self, source: impl AsRef<Path>, build: Build) -> PathBuf {
        let source = Path::new(CRATE).join("tests/c").join(source);
        let program = self.folder.path().join(format!("{build:?}"));
        let mut compiler = match build {
            Build::Cpp => Command::new("c++"),
            Build::C | Build::Static => Command::new("cc"),
        };
        match build {
            Build::Cpp => compiler.args(["-std=c++17", "-x", "c++"]),
            Build::C | Build::Static => compiler.arg("-std=c11"),
        };
        compiler
            .args([
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-O1",
                "-g",
                "-pthread",
            ])
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
            .arg(&source)
            .args(["-x", "none", "-o"])
            .arg(&program);
        match build {
            Build::Static => compiler
                .arg(self.folder.path().join("libperdure.a"))
                .args(STATIC_NEEDS),
            Build::C | Build::Cpp => compiler
                .arg("-L")
                .arg(self.folder.path())
                .arg("-lperdure")
                .arg(format!("-Wl,-rpath,{}", self.folder.path().display())),
        };
        succeed(&mut compiler);
        program
    }
}

/// Runs something to its good end, and returns what it said.
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let (said, complained) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(
        status.success(),
        "{command:?}: {status}\n{said}{complained}"
    );
    said.into_owned()
}
