use super::*;

const MS: u64 = 1_000_000;

/// The times in ms at which bursts are measured, if one begins each millisecond beside this number of contenders.
fn measured(
    sampling: &mut BurstSampling,
    ms: std::ops::Range<u64>,
    contenders: impl Fn(u64) -> u64,
) -> Vec<u64> {
    ms.filter(|at| sampling.is_due(contenders(*at), at * MS)).collect()
}

#[test]
fn bursts_are_measured_at_doubling_intervals_and_then_each_5_s() {
    let found = measured(&mut BurstSampling::default(), 0..21_000, |_| 1);
    assert_eq!(found, [0, 20, 60, 140, 300, 620, 1_260, 2_540, 5_100, 10_100, 15_100, 20_100]);
}

#[test]
fn without_contenders_no_burst_is_measured() {
    assert_eq!(measured(&mut BurstSampling::default(), 0..21_000, |_| 0), []);
}

#[test]
fn new_contender_restarts_the_intervals() {
    let mut sampling = BurstSampling::default();
    measured(&mut sampling, 0..21_000, |_| 1);
    assert_eq!(measured(&mut sampling, 21_000..21_200, |_| 2), [21_000, 21_020, 21_060, 21_140]);
}

#[test]
fn contenders_that_come_and_go_do_not_restart_the_intervals_each_time() {
    let found = measured(&mut BurstSampling::default(), 0..100_000, |at| at / 50 % 3);
    assert!(found.len() <= 10 * 10, "{} bursts in 100 s", found.len());
}
