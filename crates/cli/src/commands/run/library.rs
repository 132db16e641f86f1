//! Where the library is that a program is started with.

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libperdure_preload.so";
/// Names the library, wherever it is.
const VARIABLE: &str = "PERDURE_PRELOAD";
/// Beside the program as cargo builds it, then as it is installed.
const PLACES: [&str; 3] = [".", "../lib/perdure", "../lib"];

/// The library: the one that the environment names, or that of this program.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let library = match named {
        Some(path) => named_library(Path::new(&path))?,
        None => {
            let program = std::env::current_exe().map_err(|error| {
                Failure::failed(format_args!("cannot find this program: {error}"))
            })?;
            installed_library(program.parent().unwrap_or(Path::new("/")))?
        }
    };
    match library.as_os_str().as_bytes().iter().any(separates) {
        false => Ok(library),
        true => Err(Failure::failed(format_args!(
            "{}: a library cannot be preloaded from a path with spaces or colons; copy it elsewhere and set {VARIABLE}",
            library.display()
        ))),
    }
}

fn named_library(path: &Path) -> Result<PathBuf, Failure> {
    let action = format!("find the library that {VARIABLE} names");
    let found = path.canonicalize().map_err(Failure::io(&action, path))?;
    match found.is_file() {
        true => Ok(found),
        false => Err(Failure::failed(format_args!(
            "{}: {VARIABLE} names something that is not a file; give the path of {NAME}",
            path.display()
        ))),
    }
}

fn installed_library(directory: &Path) -> Result<PathBuf, Failure> {
    let candidates = PLACES.map(|place| directory.join(place).join(NAME));
    let found = candidates.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let places = candidates.map(|path| path.display().to_string());
        Failure::failed(format_args!(
            "there is no {NAME}, neither as {}; build it with `cargo build --release -p perdure-preload`, or install Perdure with `make install`, \
             or say in {VARIABLE} where it is",
            places.join(" nor as ")
        ))
    })
}

/// What the loader splits `LD_PRELOAD` at.
fn separates(byte: &u8) -> bool {
    matches!(byte, b' ' | b':')
}

/// The value of `LD_PRELOAD` that loads the library first, and after it what was to be loaded anyway.
pub(super) fn before_others(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_program_and_where_it_is_installed() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("its path");
        let (bin, lib) = (root.join("bin"), root.join("lib/perdure"));
        std::fs::create_dir(&bin).expect("made");
        std::fs::create_dir_all(&lib).expect("made");
        let message = format!("{:?}", installed_library(&bin).expect_err("none is there"));
        for part in [
            "lib/perdure/lib",
            "bin/./lib",
            "cargo build",
            "make install",
        ] {
            assert!(message.contains(part), "{message}");
        }
        for directory in [&lib, &bin] {
            let library = directory.join(NAME);
            std::fs::write(&library, "").expect("written");
            assert_eq!(installed_library(&bin).expect("found"), library);
        }
    }

    #[test]
    fn other_libraries_are_loaded_after_ours() {
        let library = Path::new("/lib/ours.so");
        assert_eq!(before_others(library, None), "/lib/ours.so");
        assert_eq!(before_others(library, Some("".as_ref())), "/lib/ours.so");
        let all = before_others(library, Some("/lib/a.so b.so".as_ref()));
        assert_eq!(all, "/lib/ours.so:/lib/a.so b.so");
    }
}
