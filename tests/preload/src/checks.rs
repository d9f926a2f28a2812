//! What is checked about a stretch of the GPU's time. Each check can fail, and says how.

use sluice_sim::ledger::{Interval, Window};

/// Two percentage points, the accuracy that shares are promised with.
pub const TWO_POINTS: f64 = 0.02;

/// Whether each of the given groups of processes (a client's) had its part of the GPU's used time, within
/// [`TWO_POINTS`], and the GPU was used for at least `busy` of all the time.
///
/// # Errors
/// Names what was not as expected, with figures.
pub fn shares(window: &Window, expected: &[(&[i32], f64)], busy: f64) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (pids, part) in expected {
        let seen: f64 = pids.iter().map(|pid| window.share_of_busy(*pid)).sum();
        if (seen - part).abs() > TWO_POINTS {
            wrong.push(format!("{pids:?} had {seen:.4} instead of {part}"));
        }
    }
    let used = used(window);
    if used < busy {
        wrong.push(format!("the GPU was used for {used:.4} of the time, less than {busy}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Part of the window in which the GPU ran somebody's kernels.
pub fn used(window: &Window) -> f64 {
    (window.busy_ns as f64) / (window.to_ns.saturating_sub(window.from_ns).max(1) as f64)
}

/// The longest time within the window in which none of this process's kernels ran, in nanoseconds.
pub fn longest_stall(timeline: &[Interval], pid: i32, (from_ns, to_ns): (u64, u64)) -> u64 {
    let mut end = from_ns;
    let mut longest = 0;
    for interval in timeline.iter().filter(|interval| interval.pid == pid) {
        longest = longest.max(interval.start_ns.saturating_sub(end));
        end = end.max(interval.end_ns);
    }
    longest.max(to_ns.saturating_sub(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn window() -> Window {
        Window { from_ns: 0, to_ns: 1_000, busy_ns: 950, gpu_ns: BTreeMap::from([(1, 285), (2, 665)]) }
    }

    #[test]
    fn shares_as_promised_pass_and_swapped_or_idle_ones_do_not() {
        assert_eq!(shares(&window(), &[(&[1], 0.3), (&[2], 0.7)], 0.9), Ok(()));
        assert!(shares(&window(), &[(&[1], 0.7), (&[2], 0.3)], 0.9).is_err());
        assert!(shares(&window(), &[(&[1], 0.3), (&[2], 0.7)], 0.96).is_err());
    }

    #[test]
    fn a_stall_counts_from_the_begin_of_the_window_to_its_end() {
        let interval = |start_ns, end_ns, pid| Interval { start_ns, end_ns, pid, busy_ns: end_ns - start_ns };
        let timeline = [interval(30, 40, 1), interval(40, 60, 2), interval(60, 90, 1)];
        assert_eq!(longest_stall(&timeline, 1, (0, 100)), 30);
        assert_eq!(longest_stall(&timeline, 1, (25, 100)), 20);
        assert_eq!(longest_stall(&timeline, 1, (25, 200)), 110);
        assert_eq!(longest_stall(&timeline, 3, (0, 100)), 100);
    }
}
