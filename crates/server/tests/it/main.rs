//! The server's integration tests: one program, because each further one costs a link.

mod coherence;
mod common;
mod damaged_names;
mod direct;
mod direct_maps;
mod direct_status;
mod early;
mod gate;
mod hostile;
mod in_place;
mod kept;
mod life;
mod loading;
mod logged;
mod on_device;
mod poser;
mod posix;
mod read_cache;
mod refused;
mod storm;
mod unused;
