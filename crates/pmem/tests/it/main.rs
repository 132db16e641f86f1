//! The medium's integration tests: one program, because each further one costs a link.

mod checksummed;
mod crash_images;
mod emulator;
mod later;
mod mapping;
mod media;
mod stores;
