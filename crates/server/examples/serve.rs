//! A minimal server: makes a volatile pool if there is none, mounts it and serves it until it is unmounted or a signal comes.
//!
//! ```text
//! cargo run --example serve -- /dev/shm/pool /mnt
//! ```

use std::error::Error;
use std::path::Path;

use fs::{FileSystem, MountOptions};
use perdure_server as server;
use server::Mounting;
use txn::{FormatOptions, Mode, PmemStore};

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = std::env::args_os().skip(1);
    let (Some(pool), Some(mountpoint)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve POOL MOUNTPOINT [SIZE_MIB]".into());
    };
    let size_mebibytes: u64 = match arguments.next() {
        Some(size) => size.to_string_lossy().parse()?,
        None => 256,
    };
    let pool = Path::new(&pool);
    if !pool.exists() {
        let options = FormatOptions {
            size_bytes: size_mebibytes << 20,
            volatile: true,
            ..FormatOptions::default()
        };
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        fs::mkfs(pool, &options, (user.as_raw(), group.as_raw()))?;
    }
    let store = PmemStore::open(pool, Mode::ReadWrite, true)?;
    let class = store.class().to_string();
    let files = FileSystem::mount(store, MountOptions::default())?;
    let mounting = Mounting {
        class,
        ..Mounting::new(pool, &mountpoint)
    };
    server::serve(files, &mounting, |_| println!("ready"))?;
    println!("clean");
    Ok(())
}
