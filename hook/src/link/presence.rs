//! Whether the manager at the other end of a connection is there and runs.
//!
//! An attached process reads the manager's heartbeat on its grant page. Before that, and with a manager that writes no heartbeat, a request
//! that the manager has not read after [`SILENCE_NS`] shows that it does not run: a manager reads requests as they come, also those whose
//! answer takes long. A manager that has read a request and then stopped is known by the missing answer: see [`AnswerLimit`].

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use sluice_comm::{HOOK_TIMEOUT, SILENCE_NS};
use sluice_hook_core::deadline_polling::Step;
use sluice_hook_core::platform::{LinkError, TokenLink};
use sluice_sys::clock::monotonic_ns;

use crate::process;

/// How long an answer may take. A manager that is known to be silent is never waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLimit {
    /// While the manager's heartbeat is fresh.
    present: Option<Duration>,
    /// Without a heartbeat to read. A manager that takes longer counts as silent.
    unknown: Option<Duration>,
}

impl AnswerLimit {
    /// For requests that a pod-manager answers when it reads them.
    pub(super) const AT_ONCE: Self =
        Self { present: Some(HOOK_TIMEOUT), unknown: Some(Duration::from_nanos(SILENCE_NS)) };

    /// For requests that a running manager may answer late, within this time.
    pub(super) const fn within(limit: Duration) -> Self {
        Self { present: Some(limit), unknown: Some(limit) }
    }

    /// For requests for a grant. A manager with a heartbeat answers when other clients let it.
    pub(super) const GRANT: Self = Self { present: None, unknown: Some(GRANT_TIMEOUT) };

    /// For a manager whose requests and silence are not seen.
    pub(super) const NONE: Self = Self { present: None, unknown: None };
}

/// How long a manager without a heartbeat may take for a grant. Such managers account for the limits of clients over 10 s.
const GRANT_TIMEOUT: Duration = Duration::from_secs(10);

/// The ioctl for the number of bytes that the peer has not read. Not in libc's constants for this target.
const SIOCOUTQ: c_ulong = 0x5411;

/// [`TokenLink::presence_left_ns`] of a device's manager at this moment.
pub(crate) fn presence_left_ns(ordinal: u32) -> Option<u64> {
    process::device_in_use(ordinal)?.device.link.presence_left_ns(monotonic_ns())
}

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

/// How often a thread that polls looks for what it waits for between two looks at the socket: each of those is a system call.
const LOOKS: u32 = 32;

/// How a thread waits for an answer.
pub(super) trait Wait {
    /// Decides whether to poll or until when to sleep; the manager's presence is checked all the same.
    fn next_step(&self, now_ns: u64) -> Step;

    /// While the thread polls: whether what it waits for has come in another way.
    fn has_come(&self) -> bool;
}

/// A wait that sleeps until the answer comes.
#[derive(Debug)]
pub(super) struct Asleep;

impl Wait for Asleep {
    fn next_step(&self, _now_ns: u64) -> Step {
        Step::Sleep
    }

    fn has_come(&self) -> bool {
        false
    }
}

/// Waits until a part of an answer can be read, or until the connection has ended. The wait began at `begun_ns`. Returns `false` if there
/// is nothing to read, and what the thread waits for has come in another way.
///
/// # Errors
/// [`LinkError::Silent`] if the manager does not run, [`LinkError::Gone`] if a manager with a heartbeat exceeds the limit.
pub(super) fn wait_for_answer(
    fd: BorrowedFd<'_>,
    ordinal: u32,
    begun_ns: u64,
    limit: AnswerLimit,
    wait: &impl Wait,
) -> Result<bool, LinkError> {
    loop {
        let now = monotonic_ns();
        let waited = now.saturating_sub(begun_ns);
        let presence_left = presence_left_ns(ordinal);
        let limit = if presence_left.is_some() { limit.present } else { limit.unknown };
        let limit_ns = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let left = limit_ns.saturating_sub(waited);
        let check = match presence_left {
            Some(0) => return Err(LinkError::Silent),
            Some(_) if left == 0 => return Err(LinkError::Gone),
            Some(presence_left) => presence_left,
            None if left == 0 => return Err(LinkError::Silent),
            None if waited < SILENCE_NS => SILENCE_NS - waited,
            None if has_unread_request(fd) => return Err(LinkError::Silent),
            None => left,
        };
        let step = wait.next_step(now);
        let sleep_ns = match step {
            Step::Poll => 0,
            Step::SleepUntil(at) => check.min(left).min(at.saturating_sub(now)),
            // Whole milliseconds, so that a check comes after its time and not before.
            Step::Sleep => check.min(left).div_ceil(1_000_000).saturating_mul(1_000_000),
        };
        match poll(fd.as_raw_fd(), libc::POLLIN, Duration::from_nanos(sleep_ns)) {
            // What is in the socket comes first, so that answers do not pile up there.
            Some(0) if step == Step::Poll && comes(wait) => return Ok(false),
            Some(0) => {}
            Some(_) => return Ok(true),
            None => return Err(LinkError::Gone),
        }
    }
}

fn comes(wait: &impl Wait) -> bool {
    (0..LOOKS).any(|_| {
        std::hint::spin_loop();
        wait.has_come()
    })
}

/// Polls one descriptor. Returns the events, 0 if there were none or a signal interrupted the wait; `None` if the call failed.
fn poll(fd: RawFd, events: i16, limit: Duration) -> Option<i16> {
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

/// Whether the manager has left bytes of this connection unread. Over TCP always `false`: there the kernel of the peer takes them.
fn has_unread_request(fd: BorrowedFd<'_>) -> bool {
    let mut unread: c_int = 0;
    // SAFETY: `unread` is writable.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCOUTQ, &raw mut unread) };
    asked == 0 && unread > 0
}

#[cfg(test)]
mod tests;
