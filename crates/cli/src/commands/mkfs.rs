//! `perdure mkfs`

use crate::arguments::Mkfs;
use crate::failure::{Failure, Status};
use crate::output::{self, Bytes};
use indicatif::ProgressBar;
use perdure::{CreateOptions, PoolOptions};
use pmem::BLOCK_BYTES;
use std::cell::OnceCell;
use txn::Data;

pub(crate) fn run(arguments: &Mkfs) -> Result<Status, Failure> {
    let options = CreateOptions::new()
        .size_bytes(arguments.size)
        .segment_bytes(arguments.segment_size)
        .journals(arguments.journals)
        .log_bytes(arguments.log_size)
        .volatile(arguments.volatile)
        .overwrite(arguments.force);
    let options = match arguments.memory {
        Some(most) => options.memory_bytes(most),
        None => options,
    };
    let options = match &arguments.home {
        Some(home) => options.home(home),
        None => options,
    };
    let options = match arguments.home_size {
        Some(bytes) => options.home_bytes(bytes),
        None => options,
    };
    write(&options, arguments)?;
    // Opened once without writing: what is reported is what is on the medium, and it can be read back.
    let pool = PoolOptions::new()
        .read_only(true)
        .read_cache(super::UNCACHED)
        .open(&arguments.pool)?;
    let superblock = *pool.filesystem().store().superblock();
    let geometry = superblock.geometry();
    output::print(format_args!(
        "created {}: {} in {} segments of {}, {} journals, {}\n",
        arguments.pool.display(),
        Bytes(geometry.total_bytes()),
        geometry.segments,
        Bytes(geometry.segment_bytes()),
        superblock.journals,
        super::class_line(pool.class(), arguments.volatile),
    ))?;
    if let Some(device) = pool.filesystem().store().device() {
        let bytes = Bytes(device.blocks() * BLOCK_BYTES as u64);
        output::print(format_args!("home {}: {bytes}\n", device.name()))?;
    }
    Ok(Status::Success)
}

/// Makes the pool. Writing the log of one on an ordinary disk takes a while.
fn write(options: &CreateOptions, arguments: &Mkfs) -> Result<(), Failure> {
    let bar: OnceCell<ProgressBar> = OnceCell::new();
    let mut progress = |done, total| {
        let bar = bar.get_or_init(|| output::byte_bar(total));
        bar.set_position(done);
    };
    let made = options.format_with_progress(&arguments.pool, &mut progress);
    if let Some(bar) = bar.get() {
        bar.finish_and_clear();
    }
    Ok(made?)
}
