//! The programs of docs/C.md compile without a warning, and do what the page says.

use crate::common::{Build, CRATE, Installed, succeed};
use std::path::Path;
use std::process::Command;

fn programs() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(CRATE).join("../../docs/C.md")).expect("the page");
    let blocks = page.split("```c\n").skip(1);
    blocks
        .map(|block| block.split("```").next().expect("its end").to_owned())
        .collect()
}

#[test]
fn the_programs_of_the_page_run() {
    let installed = Installed::new();
    let programs = programs();
    let [embedded, client] = programs.as_slice() else {
        panic!("{} programs", programs.len());
    };
    let source = installed.folder().join("example.c");
    let place = installed.folder();

    std::fs::write(&source, embedded).expect("write");
    let program = installed.compile(&source, Build::C);
    for landed in [0, 8] {
        let said = succeed(Command::new(&program).arg(place.join("pool")));
        assert_eq!(said, format!("at {landed}: started\n"));
    }

    std::fs::write(&source, client).expect("write");
    let program = installed.compile(&source, Build::C);
    let table = place.join("table");
    succeed(Command::new(&program).arg(&table));
    assert_eq!(std::fs::read(table).expect("read")[..6], *b"row 1\0");
}
