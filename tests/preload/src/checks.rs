//! Checks of a span of the GPU's time. Each check can fail, and reports its figures.

use sluice_sim::ledger::Window;
use sluice_test_bed::Report;

/// Two percentage points, the promised accuracy of shares.
pub const TWO_POINTS: f64 = 0.02;

/// Checks that each group of processes (those of a client) had its part of the GPU's used time, within [`TWO_POINTS`], and that the
/// GPU was used for at least `busy` of the whole time. Allows for `taken`, the part of the time that the host took from this machine.
///
/// # Errors
/// Names the failed checks with their figures.
pub fn shares(window: &Window, expected: &[(&[i32], f64)], busy: f64, taken: f64) -> Result<(), String> {
    let accuracy = TWO_POINTS + taken;
    let mut report = Report::default();
    for (pids, part) in expected {
        let share: f64 = pids.iter().map(|pid| window.share_of_busy(*pid)).sum();
        report.check((share - part).abs() <= accuracy, format!("{pids:?} had {share:.4} instead of {part}"));
    }
    let used = used(window);
    report
        .check(used >= busy - taken, format!("the GPU was used for {used:.4} of the time, less than {busy}"));
    report.into_result()
}

/// Part of the window in which the GPU ran kernels.
pub fn used(window: &Window) -> f64 {
    (window.busy_ns as f64) / (window.to_ns.saturating_sub(window.from_ns).max(1) as f64)
}

/// Checks that a process ran in each window for at least half of the time that it had on average. All that the host took from this
/// machine, a part `taken` of the windows together, may have been taken in one window.
///
/// # Errors
/// Names the windows in which it ran for less.
pub fn runs_in_each(windows: &[Window], pid: i32, taken: f64) -> Result<(), String> {
    let shares: Vec<f64> = windows.iter().map(|window| window.share_of_time(pid)).collect();
    let mean = shares.iter().sum::<f64>() / (shares.len().max(1) as f64);
    let lost = taken * windows.len() as f64;
    let mut report = Report::default();
    for (number, share) in shares.iter().enumerate() {
        let possible = share + lost;
        let enough = possible > 0.0 && possible >= mean / 2.0;
        report.check(
            enough,
            format!("{pid} had {share:.4} of the time in window {number}, {mean:.4} on average"),
        );
    }
    report.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn window() -> Window {
        Window { from_ns: 0, to_ns: 1_000, busy_ns: 950, gpu_ns: BTreeMap::from([(1, 285), (2, 665)]) }
    }

    #[test]
    fn expected_shares_pass_and_swapped_or_idle_ones_fail() {
        assert_eq!(shares(&window(), &[(&[1], 0.3), (&[2], 0.7)], 0.9, 0.0), Ok(()));
        assert!(shares(&window(), &[(&[1], 0.7), (&[2], 0.3)], 0.9, 0.0).is_err());
        assert!(shares(&window(), &[(&[1], 0.3), (&[2], 0.7)], 0.96, 0.0).is_err());
        assert!(shares(&window(), &[(&[1], 0.33), (&[2], 0.67)], 0.9, 0.0).is_err());
        assert_eq!(shares(&window(), &[(&[1], 0.33), (&[2], 0.67)], 0.9, 0.011), Ok(()));
    }

    #[test]
    fn a_process_that_misses_one_window_does_not_run_in_each() {
        let idle = Window { gpu_ns: BTreeMap::from([(2, 665)]), ..window() };
        assert_eq!(runs_in_each(&[window(), window()], 1, 0.0), Ok(()));
        assert!(runs_in_each(&[window(), idle.clone(), window()], 1, 0.0).is_err());
        assert!(runs_in_each(&[idle], 1, 0.0).is_err());
    }
}
