//! A mount has more than answers to requests: the control socket, direct access, and the threads
//! that ask the kernel.

use std::path::Path;
use std::sync::Arc;

use fuse::Notifier;
use txn::Store;

use super::{Mounting, Stopper};
use crate::answers::Asked;
use crate::control::{ControlSocket, ControlThread};
use crate::direct::Direct;
use crate::handler::Shared;
use crate::transport::Transport;

/// All of them. Each is left out, with a line in the log, where it cannot be had.
pub(super) struct Companions {
    control: Option<ControlThread>,
    direct: Option<Direct>,
}

impl Companions {
    /// Starts them for a mount that answers no request yet.
    pub(super) fn start<S: Store>(
        shared: &Arc<Shared<S>>,
        mounting: &Mounting,
        stopper: &Stopper,
        notifier: &Notifier,
    ) -> Companions {
        start_questions(shared, stopper, notifier.clone());
        let direct = open_direct(shared, mounting, stopper, notifier.clone());
        let control = open_control(shared, mounting, &stopper.mountpoint);
        Companions { control, direct }
    }

    /// Ends them. No request comes any more.
    pub(super) fn end<S: Store>(self, shared: &Arc<Shared<S>>) {
        drop(self.control);
        shared.end_questions();
        if let Some(direct) = self.direct {
            direct.end();
        }
    }
}

fn open_control<S: Store>(
    shared: &Arc<Shared<S>>,
    mounting: &Mounting,
    place: &Path,
) -> Option<ControlThread> {
    let asked = Asked::new(shared.clone(), mounting, place);
    let directory = shared.fs.store().directory();
    let control = ControlSocket::bind(&mounting.pool, directory);
    let control = control.and_then(|socket| socket.start(asked));
    control
        .inspect_err(|error| {
            tracing::warn!(pool = %mounting.pool.display(), %error, "no control socket: `perdure stat` will not see this mount");
        })
        .ok()
}

/// Starts the threads that ask the kernel for dirty pages.
fn start_questions<S: Store>(shared: &Shared<S>, stopper: &Stopper, notifier: Notifier) {
    let (place, minor) = (stopper.mountpoint.clone(), stopper.device_minor);
    let threads = match shared.transport.get() {
        Transport::IoUring(stations) => stations,
        Transport::Classic(threads) => shared.gate.readers(threads),
    };
    if let Err(error) = shared.questions.start(place, minor, notifier, threads) {
        tracing::warn!(%error, "no threads to ask the kernel: stores into mappings are seen after msync");
    }
}

/// Offers direct access, if it is wanted, unless nothing can be written or the pool has no file for
/// each segment. Of class `log` processes only read: their stores would be in nobody's log.
fn open_direct<S: Store>(
    shared: &Arc<Shared<S>>,
    mounting: &Mounting,
    stopper: &Stopper,
    notifier: Notifier,
) -> Option<Direct> {
    let device_minor = stopper.device_minor?;
    let store = shared.fs.store();
    if !mounting.direct || mounting.read_only || store.directory().is_none() {
        return None;
    }
    if mounting.in_place && store.logger().is_some() {
        tracing::warn!(pool = %mounting.pool.display(), "--in-place changes nothing: programs write a pool of class log through the kernel");
    }
    Direct::start(shared, mounting, device_minor, notifier)
        .inspect_err(|error| {
            tracing::warn!(pool = %mounting.pool.display(), %error, "no direct access: programs use the mount through the kernel");
        })
        .ok()
}
