//! Waits for one descriptor.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until the peer closes a connection, from either side, for at most `ms` milliseconds. Answers that were not read do not matter.
pub(crate) fn has_ended_within(connection: RawFd, ms: c_int) -> bool {
    let limit = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let Some(events) = poll(connection, libc::POLLRDHUP, limit) else {
        // poll fails for example if the program has set RLIMIT_NOFILE to 0. The caller repeats this call.
        std::thread::sleep(limit);
        return false;
    };
    events != 0
}

/// Polls one descriptor. Returns the events, 0 if there were none or a signal interrupted the wait; `None` if the call failed.
pub(crate) fn poll(fd: RawFd, events: i16, limit: Duration) -> Option<i16> {
    let mut waited = libc::pollfd { fd, events, revents: 0 };
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
    };
    // SAFETY: one entry is readable and writable, the time is readable, and without a mask no signal mask is changed.
    match unsafe { libc::ppoll(&raw mut waited, 1, &raw const limit, std::ptr::null()) } {
        -1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => Some(0),
        -1 => None,
        _ => Some(waited.revents),
    }
}

#[cfg(test)]
mod tests;
