use super::*;

/// A hold kernel that got the GPU after `took` and ran for 100 us. The GPU's clock is far from the host's.
fn hold(took: u64) -> HoldTimes {
    let launched_ns = 5_000_000;
    let began_gpu_ns = 1_700_000_000_000_000_000;
    HoldTimes {
        launched_ns,
        changed_ns: launched_ns + took + 100_000,
        began_gpu_ns,
        seen_gpu_ns: began_gpu_ns + 100_000,
    }
}

#[test]
fn estimate_is_independent_of_the_gpu_clock_offset() {
    let mut cost = SwitchCost::default();
    (0..200).for_each(|_| cost.learn(hold(170_000)));
    assert!((cost.ns() - 170_000.0).abs() < 1_000.0, "{}", cost.ns());
}

#[test]
fn late_hold_kernel_raises_the_estimate_faster_than_an_early_one_lowers_it() {
    let mut cost = SwitchCost::default();
    (0..200).for_each(|_| cost.learn(hold(170_000)));
    cost.learn(hold(370_000));
    assert!(cost.ns() > 260_000.0);
    cost.learn(hold(170_000));
    assert!(cost.ns() > 250_000.0);
}

#[test]
fn idle_gpu_is_distinguished_from_contention() {
    let mut cost = SwitchCost::default();
    (0..50).for_each(|_| cost.learn(hold(8_000)));
    assert!(!cost.shows_contention());
    (0..3).for_each(|_| cost.learn(hold(170_000)));
    assert!(cost.shows_contention());
}

#[test]
fn inconsistent_times_are_ignored() {
    let mut cost = SwitchCost::default();
    cost.learn(HoldTimes { launched_ns: 9, changed_ns: 1, began_gpu_ns: 0, seen_gpu_ns: 1 });
    cost.learn(HoldTimes { launched_ns: 1, changed_ns: 9, began_gpu_ns: 5, seen_gpu_ns: 1 });
    assert_eq!(cost.ns(), INITIAL_NS);
}
