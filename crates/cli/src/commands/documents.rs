//! `perdure completions` and `perdure man`: generated from the command line's own description.

use crate::arguments::{Arguments, Completions, Man};
use crate::failure::{Failure, Status};
use crate::output;
use clap::{Command, CommandFactory};
use std::path::Path;

pub(crate) fn completions(arguments: &Completions) -> Result<Status, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "perdure",
        &mut text,
    );
    output::print(String::from_utf8_lossy(&text))?;
    Ok(Status::Success)
}

/// Writes `perdure.1` and a page for each command, `perdure-mkfs.1` and so on, and for the commands of a command, `perdure-bench-ops.1`.
pub(crate) fn manual(arguments: &Man) -> Result<Status, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).map_err(Failure::io("create the directory", directory))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(directory, "perdure", &command)?;
    Ok(Status::Success)
}

fn write_pages(directory: &Path, name: &str, command: &Command) -> Result<(), Failure> {
    write_page(directory, name, command.clone())?;
    command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
        .try_for_each(|subcommand| {
            let name = format!("{name}-{}", subcommand.get_name());
            write_pages(directory, &name, subcommand)
        })
}

fn write_page(directory: &Path, name: &str, command: Command) -> Result<(), Failure> {
    let page = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    let title = name.to_uppercase();
    clap_mangen::Man::new(command)
        .title(title)
        .render(&mut text)
        .map_err(Failure::failed)?;
    std::fs::write(&page, text).map_err(Failure::io("write", &page))
}
