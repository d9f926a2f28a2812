//! The monotonic clock. All processes of a machine share it, except those in a time namespace (time_namespaces(7)).

use std::fs;
use std::sync::OnceLock;

/// CLOCK_MONOTONIC in nanoseconds since some fixed point (on Linux: boot), as this process's time namespace has it.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec for the duration of the call, which keeps no pointer to it.
    // CLOCK_MONOTONIC exists on every Linux, so the call cannot fail and leaves a normalised, non-negative time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs())
}

/// [`monotonic_ns`] as the initial time namespace of the machine has it. The offset is read at the first call.
pub fn initial_monotonic_ns() -> u64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(|| namespace_offset_ns().unwrap_or(0));
    monotonic_ns().saturating_add_signed(offset.saturating_neg())
}

/// By how many nanoseconds CLOCK_MONOTONIC of this process is ahead of the initial time namespace's. `None` if that cannot be read: without
/// /proc, with a kernel before 5.6, or if the process's children are to have another namespace, which the file would describe.
pub fn namespace_offset_ns() -> Option<i64> {
    let link = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    let (own, of_children) = (link("time")?, link("time_for_children")?);
    let offsets = fs::read_to_string("/proc/self/timens_offsets").ok().filter(|_| own == of_children)?;
    offset_of(&offsets)
}

/// The offset of CLOCK_MONOTONIC in the text of `timens_offsets`: lines of a clock, seconds and nanoseconds.
fn offset_of(offsets: &str) -> Option<i64> {
    let words = offsets.lines().map(str::split_ascii_whitespace);
    let mut words = words.map(Iterator::collect::<Vec<_>>);
    let line = words.find(|words| words.first() == Some(&"monotonic"))?;
    let [_, seconds, ns] = line[..] else { return None };
    seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_the_monotonic_clock_is_read() {
        let text = "monotonic          -1000    250000000\nboottime          100000         0\n";
        assert_eq!(offset_of(text), Some(-999_750_000_000));
        assert_eq!(offset_of("boottime 1 0\n"), None);
    }
}
