//! The committed header is the library's: what cbindgen makes of the sources, and what the library exports.
//!
//! cbindgen is a tool, not a dependency: who builds or uses the library needs none. `scripts/install-tools.sh test` installs it; without it only the names are compared.

use crate::common::{CRATE, Installed, succeed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As in `scripts/install-tools.sh`.
const CBINDGEN_VERSION: &str = "0.29.4";

fn header_path() -> PathBuf {
    Path::new(CRATE).join("include/perdure.h")
}

fn cbindgen() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| home.map(|home| home.join(".cache")));
    let tools = std::env::var_os("PERDURE_TOOLS").map(PathBuf::from);
    let tools = tools.or_else(|| cache.map(|cache| cache.join("perdure/tools")))?;
    let tool = tools.join(format!("bin/cbindgen-{CBINDGEN_VERSION}"));
    tool.exists().then_some(tool)
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    let Some(tool) = cbindgen() else {
        println!(
            "skipped: there is no cbindgen {CBINDGEN_VERSION} (scripts/install-tools.sh test)"
        );
        return;
    };
    let mut command = Command::new(tool);
    command.args(["--quiet", "--config", "cbindgen.toml", "."]);
    let made = succeed(command.current_dir(CRATE));
    // The names of pointers.rs stand for types with a star, which cbindgen takes for words.
    let made = made
        .replace("char * ", "char *")
        .replace("void * ", "void *");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(header_path(), &made).expect("write");
    }
    let committed = std::fs::read_to_string(header_path()).expect("the header");
    assert!(
        committed == made,
        "include/perdure.h is not what the sources say: UPDATE_HEADER=1 cargo test -p perdure-capi --test it header"
    );
}

/// Names of functions in the header's prototypes: the word before the first parenthesis.
fn declared(header: &str) -> BTreeSet<String> {
    let is_comment = |line: &&str| !line.starts_with([' ', '/', '*', '#']);
    let prototypes = header.lines().filter(is_comment);
    let names = prototypes.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("perdure_").then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let installed = Installed::new();
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=just-symbols"]);
    let exported: BTreeSet<String> = succeed(nm.arg(installed.shared_object()))
        .lines()
        .map(str::to_owned)
        .collect();
    let header = std::fs::read_to_string(header_path()).expect("the header");
    let declared = declared(&header);
    assert!(declared.len() > 50, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn programs_ask_for_the_library_by_its_major_version() {
    let installed = Installed::new();
    let mut objdump = Command::new("objdump");
    let said = succeed(objdump.arg("-p").arg(installed.shared_object()));
    let name = said.lines().find(|line| line.contains("SONAME"));
    assert!(
        name.is_some_and(|name| name.ends_with(" libperdure.so.0")),
        "{name:?}"
    );
}
