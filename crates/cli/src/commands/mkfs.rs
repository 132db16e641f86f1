//! `perdure mkfs`

use crate::arguments::Mkfs;
use crate::failure::{Failure, Status};
use crate::output::{self, Bytes};
use perdure::{CreateOptions, PoolOptions};

pub(crate) fn run(arguments: &Mkfs) -> Result<Status, Failure> {
    let options = CreateOptions::new()
        .size_bytes(arguments.size)
        .segment_bytes(arguments.segment_size)
        .journals(arguments.journals)
        .volatile(arguments.volatile)
        .overwrite(arguments.force);
    options.format(&arguments.pool)?;
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
    Ok(Status::Success)
}
