use super::*;

/// An empty row, without hints.
pub(in super::super) fn row(be_kernel_us: u32, level: PreemptionLevel) -> Row {
    Measurements::default().row(be_kernel_us, level, false, &ArmSamples::default(), Vec::new())
}

fn with(results: &[(&str, u64)]) -> ArmSamples {
    let hints = results.iter().map(|(code, times)| ((*code).to_owned(), *times)).collect();
    ArmSamples { hints, ..ArmSamples::default() }
}

#[test]
fn requests_without_an_accepted_hint_are_no_hinted_requests() {
    assert_eq!(with(&[("0", 1), ("9", 3)]).misses(true), None);
    assert_eq!(with(&[]).misses(false), None);
    for refused in [with(&[("10", 24)]), with(&[])] {
        assert!(refused.misses(true).is_some_and(|why| why.contains("no hint was accepted")));
    }
    assert!(with(&[("10", 24)]).misses(true).is_some_and(|why| why.contains("10")));
}

#[test]
fn a_block_without_kernels_counts_as_time() {
    let mut samples = ArmSamples::default();
    for kernels in [10.0, 0.0] {
        samples.ran(&RunResult { kernels, span_ns: 1_000_000_000, ..RunResult::default() });
    }
    assert!((samples.rate() - 5.0).abs() < 1e-9, "{}", samples.rate());
}
