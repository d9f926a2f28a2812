//! Waiting on the low half of a word of memory that other processes map, too.
//!
//! The futexes are shared ones: the kernel finds the waiters by file and offset, not by address. Both calls also work
//! through a read-only mapping.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How a wait ended. In every case the caller must read its word again: none of them guarantees a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A thread woke the word, or the wake-up was spurious.
    Woken,
    /// The word did not hold the expected value, so there was no wait.
    Changed,
    /// The timeout elapsed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// The kernel refuses to wait here (a seccomp filter, for instance): waiting again will not help.
    Refused,
}

/// Address of the low 32 bits; only the kernel reads through it, so Rust never mixes sizes of atomic access.
fn low_half(word: &AtomicU64) -> *mut u32 {
    let halves = word.as_ptr().cast::<u32>();
    if cfg!(target_endian = "little") { halves } else { halves.wrapping_add(1) }
}

/// Waits until the low 32 bits of `word` are woken, unless they do not hold `expected`; without a timeout for as long as
/// it takes.
#[must_use]
pub fn wait_low(word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> Wake {
    let word = low_half(word);
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    });
    let deadline = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` comes from a reference that outlives the call, is aligned to 4 and readable for 4 bytes; the
    // kernel reads it atomically and does not write. `deadline` is null or points at a normalised timespec on this
    // stack. FUTEX_WAIT takes the timeout as a duration on CLOCK_MONOTONIC and ignores the other arguments.
    let done = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, expected, deadline) };
    if done == 0 {
        return Wake::Woken;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Wake::Changed,
        Some(libc::ETIMEDOUT) => Wake::TimedOut,
        Some(libc::EINTR) => Wake::Interrupted,
        _ => Wake::Refused,
    }
}

/// Wakes up to `count` waiters of the low 32 bits of `word` and returns how many there were.
pub fn wake_low(word: &AtomicU64, count: u32) -> u32 {
    let word = low_half(word);
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: `word` comes from a reference that outlives the call and is aligned to 4; FUTEX_WAKE uses the address as
    // a key only and neither reads nor writes the word.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) };
    u32::try_from(woken).unwrap_or(0)
}
