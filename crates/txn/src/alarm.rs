//! Interrupting system calls that wait for somebody else.

use rustix::thread::gettid;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::time::Duration;

/// Ignored unless somebody waits for it, and used for nothing else here.
const INTERRUPT: libc::c_int = libc::SIGURG;

/// While it lives, the thread that has set it is interrupted again and again.
#[derive(Debug)]
pub struct Alarm(libc::timer_t);

impl Alarm {
    /// Interrupts the calling thread after `first`, then each time after `every`, less than a second both. Only system calls that wait notice: they end with `EINTR`.
    ///
    /// # Errors
    ///
    /// What the system says: nothing is interrupted.
    pub fn set(first: Duration, every: Duration) -> io::Result<Alarm> {
        handle();
        let pause = |length: Duration| libc::timespec {
            tv_sec: 0,
            tv_nsec: length.subsec_nanos().into(),
        };
        let when = libc::itimerspec {
            it_value: pause(first),
            it_interval: pause(every),
        };
        let mut timer = MaybeUninit::uninit();
        // SAFETY: zeros are an event; the kernel reads it, and writes the timer if it says that it has made one.
        let alarm = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = INTERRUPT;
            event.sigev_notify_thread_id = gettid().as_raw_nonzero().get();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Alarm(timer.assume_init())
        };
        // SAFETY: the timer is this one's, and the kernel reads the time.
        match unsafe { libc::timer_settime(alarm.0, 0, &raw const when, ptr::null_mut()) } {
            0 => Ok(alarm),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: it is this one's, and not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

extern "C" fn interrupted(_signal: libc::c_int) {}

fn handle() {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        // SAFETY: zeros are an action without flags and with an empty mask; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = interrupted as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(INTERRUPT, &raw const action, ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::time::Instant;

    #[test]
    fn who_waits_is_interrupted_and_who_does_not_is_not() {
        let (pipe, _other) = std::io::pipe().expect("a pipe");
        let wait = || rustix::io::read(&pipe, &mut [0; 1]);
        let begin = Instant::now();
        let alarm = Alarm::set(Duration::from_millis(20), Duration::from_millis(1));
        let alarm = alarm.expect("a timer");
        for _ in 0..3 {
            assert_eq!(wait(), Err(Errno::INTR));
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
        drop(alarm);
        std::thread::sleep(Duration::from_millis(5));
    }
}
