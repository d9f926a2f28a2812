//! Evaluation of a program's progress: samples (time, kernels completed by then) in order, in nanoseconds of one clock.

/// Kernels completed in a span. The span is never shortened: a program that is stopped at its begin or end has completed fewer.
pub(super) fn kernels_within(samples: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    (completed_by(samples, to_ns) - completed_by(samples, from_ns)).max(0.0)
}

/// Kernels completed at a time, interpolated between the samples before and after it.
fn completed_by(samples: &[(u64, u64)], time: u64) -> f64 {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    match (before, samples.get(next)) {
        (Some(before), Some(after)) => {
            let part = (time - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + part * (after.1 - before.1) as f64
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// The times from the last sample before `time` to it, and from it to the next sample.
pub(super) fn gaps_around(samples: &[(u64, u64)], time: u64) -> (Option<u64>, Option<u64>) {
    let next = samples.partition_point(|(sampled, _)| *sampled < time);
    let before = next.checked_sub(1).and_then(|last| samples.get(last));
    (before.map(|(sampled, _)| time - sampled), samples.get(next).map(|(sampled, _)| sampled - time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_kernels(samples: &[(u64, u64)], from_ns: u64, to_ns: u64, expected: f64) {
        let found = kernels_within(samples, from_ns, to_ns);
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn kernels_at_the_ends_of_a_span_count_in_part() {
        let samples = [(10, 1), (20, 2), (30, 4), (40, 7), (50, 8)];
        assert_kernels(&samples, 20, 40, 5.0);
        assert_kernels(&samples, 15, 45, 6.0);
        assert_kernels(&samples, 20, 20, 0.0);
        assert_kernels(&samples, 60, 90, 0.0);
        assert_kernels(&[], 0, 90, 0.0);
    }

    #[test]
    fn span_counts_as_a_whole_if_the_program_is_stopped_in_it() {
        let stopped_to_the_end = [(0, 0), (100, 10), (1100, 11), (1200, 21)];
        assert_kernels(&stopped_to_the_end, 0, 600, 10.5);
        let stopped_throughout = [(0, 0), (100, 10), (1100, 11)];
        assert_kernels(&stopped_throughout, 200, 1000, 0.8);
    }

    #[test]
    fn gaps_are_measured_to_the_samples_before_and_after() {
        let samples = [(10, 1), (20, 2), (50, 4)];
        assert_eq!(gaps_around(&samples, 27), (Some(7), Some(23)));
        assert_eq!(gaps_around(&samples, 20), (Some(10), Some(0)));
        assert_eq!(gaps_around(&samples, 5), (None, Some(5)));
        assert_eq!(gaps_around(&samples, 51), (Some(1), None));
    }
}
