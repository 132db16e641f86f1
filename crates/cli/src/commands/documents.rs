//! `perdure completions` and `perdure man`: generated from the command line's own description.

use crate::arguments::{Arguments, Completions, Man};
use crate::failure::{Failure, Status};
use crate::output;
use clap::{Arg, Command, CommandFactory};
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
    let synopsis = synopsis(&command);
    clap_mangen::Man::new(command.override_usage(synopsis))
        .title(title)
        .render(&mut text)
        .map_err(Failure::failed)?;
    let text = as_typed(&String::from_utf8_lossy(&text));
    std::fs::write(&page, text).map_err(Failure::io("write", &page))
}

/// How the command is called: options with their values, and `--` where a program follows.
fn synopsis(command: &Command) -> String {
    let mut line = command.get_bin_name().unwrap_or("perdure").to_owned();
    let shown = |argument: &&Arg| !argument.is_hide_set();
    let is_usual = |option: &&Arg| matches!(option.get_id().as_str(), "help" | "version");
    let options = command
        .get_arguments()
        .filter(|argument| !argument.is_positional());
    for option in options.filter(shown).filter(|option| !is_usual(option)) {
        match option.is_required_set() {
            true => line += &format!(" {option}"),
            false => line += &format!(" [{option}]"),
        }
    }
    for argument in command.get_positionals().filter(shown) {
        let dashes = if argument.is_last_set() { " --" } else { "" };
        line += &format!("{dashes} {argument}");
    }
    if command.has_subcommands() {
        line += " <COMMAND>";
    }
    line
}

/// A page whose indented lines, which are examples and tables, stay as they are; no word is broken.
fn as_typed(page: &str) -> String {
    let mut text = String::from(".nh\n");
    let mut is_kept = false;
    for line in page.lines() {
        let is_indented = line.starts_with("  ");
        if is_indented != is_kept {
            text += if is_indented { ".nf\n" } else { ".fi\n" };
            is_kept = is_indented;
        }
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synopsis_can_be_typed() {
        let mut command = Arguments::command();
        command.build();
        let run = command.find_subcommand("run").expect("a command");
        let line = synopsis(run);
        assert!(line.starts_with("perdure run "), "{line}");
        assert!(line.contains("[--at <MNT>]"), "{line}");
        assert!(line.ends_with(" <POOL|MNT> -- <PROGRAM>..."), "{line}");
        let mkfs = command.find_subcommand("mkfs").expect("a command");
        assert!(synopsis(mkfs).contains(" --size <BYTES>"));
    }

    #[test]
    fn examples_are_not_filled() {
        let page = "text\n  one\n  two\ntext\n";
        let typed = ".nh\ntext\n.nf\n  one\n  two\n.fi\ntext\n";
        assert_eq!(as_typed(page), typed);
    }
}
