//! A C program uses pools of its own: `c/embedded.c`, as C and as C++, with the shared library and with the static one.

use crate::common::{Build, Installed, succeed};
use std::process::Command;

fn run(build: Build) {
    let installed = Installed::new();
    let program = installed.compile("embedded.c", build);
    let place = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let mut command = Command::new("timeout");
    let said = succeed(command.arg("300").arg(program).arg(place.path()));
    assert!(said.ends_with("PASS\n"), "{said}");
    println!("{said}");
}

#[test]
fn as_c() {
    run(Build::C);
}

#[test]
fn as_cpp() {
    run(Build::Cpp);
}

#[test]
fn with_the_static_library() {
    run(Build::Static);
}
