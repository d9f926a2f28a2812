//! What follows from looks at a program's progress: (when, kernels that had ended by then), in order. Nanoseconds of one clock.

/// Kernels of a span. It is the whole of the span: who stands at its begin or to its end gets no more for that.
pub(super) fn within(ended: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    (up_to(ended, to_ns) - up_to(ended, from_ns)).max(0.0)
}

/// Kernels that had ended at a moment. Those that ended between the looks before and after it count in proportion to the time.
fn up_to(ended: &[(u64, u64)], moment: u64) -> f64 {
    let next = ended.partition_point(|(when, _)| *when < moment);
    let before = next.checked_sub(1).and_then(|last| ended.get(last));
    match (before, ended.get(next)) {
        (Some(before), Some(after)) => {
            let part = (moment - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + part * (after.1 - before.1) as f64
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// From the last look before a moment to it, and from it to the next look.
pub(super) fn around(ended: &[(u64, u64)], moment: u64) -> (Option<u64>, Option<u64>) {
    let next = ended.partition_point(|(when, _)| *when < moment);
    let before = next.checked_sub(1).and_then(|last| ended.get(last));
    (before.map(|(when, _)| moment - when), ended.get(next).map(|(when, _)| when - moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn counts(ended: &[(u64, u64)], from_ns: u64, to_ns: u64, kernels: f64) {
        let found = within(ended, from_ns, to_ns);
        assert!((found - kernels).abs() < 1e-9, "{found} instead of {kernels}");
    }

    #[test]
    fn kernels_that_end_at_the_ends_of_a_span_count_in_part() {
        let ended = [(10, 1), (20, 2), (30, 4), (40, 7), (50, 8)];
        counts(&ended, 20, 40, 5.0);
        counts(&ended, 15, 45, 6.0);
        counts(&ended, 20, 20, 0.0);
        counts(&ended, 60, 90, 0.0);
        counts(&[], 0, 90, 0.0);
    }

    #[test]
    fn a_span_in_which_somebody_stands_counts_as_a_whole() {
        let stood_to_the_end = [(0, 0), (100, 10), (1100, 11), (1200, 21)];
        counts(&stood_to_the_end, 0, 600, 10.5);
        let stood_all_along = [(0, 0), (100, 10), (1100, 11)];
        counts(&stood_all_along, 200, 1000, 0.8);
    }

    #[test]
    fn a_moment_lies_between_two_looks() {
        let ended = [(10, 1), (20, 2), (50, 4)];
        assert_eq!(around(&ended, 27), (Some(7), Some(23)));
        assert_eq!(around(&ended, 20), (Some(10), Some(0)));
        assert_eq!(around(&ended, 5), (None, Some(5)));
        assert_eq!(around(&ended, 51), (Some(1), None));
    }
}
