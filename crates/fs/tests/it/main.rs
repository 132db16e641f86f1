//! The file system's integration tests: one program, because each further one costs a link.

mod allocate;
mod basic;
mod check;
mod common;
mod copies;
mod embedding;
mod format_document;
mod full;
mod given;
mod kept;
mod leases;
mod lessee;
mod links;
mod on_device;
mod owners;
mod planted;
mod readers;
mod residue;
mod residue_of_image;
#[cfg(feature = "deliberate-bugs")]
mod secret;
mod small_log;
mod tampered;
mod tier;
