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
