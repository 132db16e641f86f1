//! The process's side against a server of one file, in this process.

mod files;
mod forked;
mod hostile;
mod maps;
mod paid;
mod reads_only;
mod runs;
mod server;
