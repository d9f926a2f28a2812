//! The monotonic clock, as all processes of a machine share it.

/// CLOCK_MONOTONIC in nanoseconds since some fixed point (on Linux: boot).
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec for the duration of the call, which keeps no pointer to it.
    // CLOCK_MONOTONIC exists on every Linux, so the call cannot fail and leaves a normalised, non-negative time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs())
}
