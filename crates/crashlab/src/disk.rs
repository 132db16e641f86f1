//! Pools of class `log`: cuts the power of two simulated disks, and kills the server.
//!
//! | module | idea |
//! | --- | --- |
//! | [`medium`] | the disks of log and image, and the states that a power cut may leave |
//! | [`sequence`] | calls, syncs, checkpoints of the image, reopens, kills, power cuts, by name |
//! | [`pool`] | the pool that each sequence starts from |
//! | [`judge`] | the oracle: the state after some call, and no call less than was durable |
//! | [`second`] | another power cut, in a recovery or after a kill |
//! | [`lab`] | runs sequences |

pub mod judge;
pub mod lab;
pub mod medium;
pub mod pool;
pub mod second;
pub mod sequence;
