//! The medium's tests that use it from outside. One program for all, because each more costs a link.

mod checksummed;
mod crash_images;
mod emulator;
mod later;
mod mapping;
mod media;
mod stores;
