//! Locks for a library that works inside other people's programs.
//!
//! An operation of such a library may come from a signal's handler, which may have interrupted the
//! program's `malloc`, the library itself, or a thread that the handler waits for. The locks of the
//! standard library and of `parking_lot` do not promise to work there. The locks here are a few
//! words each, take no memory, and keep nothing for a thread; a thread that waits sleeps in the
//! kernel (`futex`). In a child of `fork`, [`Lock::forget`] and [`Bias::forget`] make a lock free
//! that another thread had; a [`Mutex`] or a [`Turns`] is left behind as a whole.
//!
//! | lock | use it for |
//! | --- | --- |
//! | [`Mutex`] | a value that one thread at a time uses: the first choice |
//! | [`Lock`] | the same without a value, or with readers that share; the wait can have an end |
//! | [`Turns`] | a value that one thread uses nearly always, and others now and then |
//! | [`Bias`] | a structure with its own rules for other threads, as `descriptors::Place` has |
//! | [`PassableLock`] | a step that is right without the lock as well, so nobody waits for ever |
//!
//! Without another thread in the way, [`Mutex`], [`Lock`] and [`PassableLock`] execute two locked
//! instructions, to lock and to unlock. [`Turns`] and [`Bias`] execute none for their owner, but
//! another thread that comes costs some microseconds (`membarrier`).
//!
//! A handler must not wait for the thread that it has interrupted. So code that runs in handlers
//! and may find its own thread inside takes [`Mutex`] and [`Lock`] with an end of the wait, or
//! blocks signals while it has them, as `direct::mapped` does. [`Turns`] and [`Bias`] refuse the
//! owner that is inside already; [`PassableLock`] tells its holder apart ([`Hold::Interrupting`]).
//!
//! None of them is for two processes: the words that the server and a process share have protocols
//! of their own, which distrust the other side (`lease`, `direct`). Nor is any for the server,
//! which runs in no other program: the server and the crates below it use `parking_lot`.
//!
//! The tests explore [`Lock`], [`Bias`] and [`PassableLock`] in all interleavings of few steps
//! (loom). [`Turns`] is made of the first two.

mod bias;
mod lock;
mod passable;
mod turns;

pub use bias::{Bias, Thread, Word, heavy_fence};
pub use lock::{Alone, Lock, Locked, Mutex, Shared};
pub use passable::{Hold, PassableLock, THREAD_MAX};
pub use turns::{Changing, Reading, Turns};
