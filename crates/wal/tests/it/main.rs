//! Tests of the log against a simulated disk and a real file.

mod basics;
mod bites;
mod crashes;
mod errors;
mod fields;
mod format_document;
mod given;
mod hostile;
mod model;
mod real_file;
mod threads;
