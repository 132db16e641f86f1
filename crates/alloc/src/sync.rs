//! Locks and shared counters: the real ones, or those of a scheduler that tries interleavings (feature `interleavings`).

#[cfg(not(feature = "interleavings"))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{
        AtomicBool as SharedBool, AtomicU32 as SharedU32, AtomicU64 as SharedU64,
    };
}

#[cfg(feature = "interleavings")]
mod real {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool as SharedBool, AtomicU32 as SharedU32, AtomicU64 as SharedU64,
    };

    /// The scheduler's mutex with the other one's manners: no poison.
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .expect("a test ends with its first panic, so nobody sees poison")
        }
    }
}

pub(crate) use real::{Mutex, MutexGuard, SharedBool, SharedU32, SharedU64};
