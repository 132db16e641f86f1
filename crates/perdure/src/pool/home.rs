//! The disk below a new pool.

use crate::error::{Error, Result};
use home::{AttachError, Create, HomeError};
use std::path::{Path, PathBuf};
use txn::{Mode, PmemStore};

/// A home that is to be made.
pub(super) struct NewHome {
    path: PathBuf,
    bytes: Option<u64>,
    /// Data blocks that it will have.
    pub(super) blocks: u32,
    /// Whether it is a file of the pool's directory; else a link there leads to it.
    is_inside: bool,
}

/// `map_err` of the errors of a pool's home.
fn failed(pool: &Path) -> impl Fn(HomeError) -> Error {
    let pool = pool.to_owned();
    move |source| Error::Home {
        pool: pool.clone(),
        source: AttachError::Home(source),
    }
}

impl NewHome {
    /// At a place that the user names.
    pub(super) fn at(pool: &Path, place: &Path, bytes: Option<u64>) -> Result<NewHome> {
        let path = match place.is_dir() {
            true => {
                let name = pool.file_name().unwrap_or_default().to_string_lossy();
                place.join(format!("{name}.home"))
            }
            false => place.to_owned(),
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let blocks = home::blocks_of(&path, bytes).map_err(failed(pool))?;
        Ok(NewHome {
            path,
            bytes,
            blocks,
            is_inside: false,
        })
    }

    /// In the pool's directory, which need not be there yet.
    pub(super) fn inside(pool: &Path, bytes: u64) -> Result<NewHome> {
        let path = home::inside(pool);
        // An old pool's home, which is in the way, goes with its pool.
        let blocks = home::blocks_of(&path, Some(bytes)).map_err(failed(pool))?;
        Ok(NewHome {
            path,
            bytes: Some(bytes),
            blocks,
            is_inside: true,
        })
    }

    /// Makes it, for a pool that was just made.
    pub(super) fn make(&self, pool: &Path, overwrite: bool) -> Result<()> {
        let store = PmemStore::open(pool, Mode::ReadOnly, true);
        let store = store.map_err(|source| Error::Open {
            pool: pool.to_owned(),
            source,
        })?;
        let uuid = store.superblock().uuid;
        drop(store);
        let create = Create {
            path: &self.path,
            pool: uuid,
            bytes: self.bytes,
            overwrite,
        };
        let made = home::create(&create).map_err(failed(pool))?;
        debug_assert!(made.blocks >= u64::from(self.blocks));
        if self.is_inside || !pool.is_dir() {
            return Ok(());
        }
        home::link(pool, &self.path).map_err(failed(pool))
    }
}
