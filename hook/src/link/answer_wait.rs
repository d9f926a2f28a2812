//! Whether the manager at the other end of a connection is there and runs.
//!
//! An attached process reads the manager's heartbeat on its grant page. Before that, and with a manager that writes no heartbeat, a request
//! that the manager has not read after [`SILENCE_NS`] shows that it does not run: a manager reads requests as they come, also those whose
//! answer takes long. A manager that has read a request and then stopped is known by the missing answer: see [`AnswerLimit`].

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use sluice_comm::SILENCE_NS;
use sluice_hook_core::deadline_polling::Step;
use sluice_hook_core::platform::LinkError;
use sluice_sys::clock::monotonic_ns;

use super::answer_limit::AnswerLimit;
use crate::polling::poll;

/// The ioctl for the number of bytes that the peer has not read. Not in libc's constants for this target.
const SIOCOUTQ: c_ulong = 0x5411;

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
    presence_left_ns: impl Fn() -> Option<u64>,
    begun_ns: u64,
    limit: AnswerLimit,
    wait: &impl Wait,
) -> Result<bool, LinkError> {
    loop {
        let now = monotonic_ns();
        let waited = now.saturating_sub(begun_ns);
        let presence_left = presence_left_ns();
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

/// Whether the manager has left bytes of this connection unread. Over TCP always `false`: there the kernel of the peer takes them.
fn has_unread_request(fd: BorrowedFd<'_>) -> bool {
    let mut unread: c_int = 0;
    // SAFETY: `unread` is writable.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCOUTQ, &raw mut unread) };
    asked == 0 && unread > 0
}
