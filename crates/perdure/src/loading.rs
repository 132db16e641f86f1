//! When a pool is read into memory.

use crate::pool::PoolOptions;
use txn::Loading;

impl PoolOptions {
    /// When a pool of class `log` is read into memory; by default while it is used.
    #[must_use]
    pub fn loading(mut self, loading: Loading) -> PoolOptions {
        self.log.loading = loading;
        self
    }
}
