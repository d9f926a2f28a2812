use super::*;

#[test]
fn quantile_is_one_of_the_samples() {
    let samples: Samples = (1..=1000).rev().map(|us| us * 1000).collect();
    let q = samples.quantiles();
    assert_eq!((q.p50, q.p99, q.p99_9, q.max), (500.0, 990.0, 999.0, 1000.0));
}

#[test]
fn two_slow_samples_in_a_hundred_change_the_p99_and_one_does_not() {
    let one: Samples = (0..99).map(|_| 10).chain([900]).collect();
    let two: Samples = (0..98).map(|_| 10).chain([900, 900]).collect();
    assert_eq!((one.quantile(0.99), two.quantile(0.99)), (10, 900));
}

#[test]
fn quantiles_of_no_samples_are_zero() {
    assert_eq!(Samples::default().quantiles(), Quantiles::default());
    assert!(Samples::default().histogram().is_empty());
}

#[test]
fn every_sample_is_in_a_cell_with_a_bound_at_most_an_eighth_above_it() {
    let samples: Samples = (0..5000).map(|i| i * i * 7).collect();
    assert_eq!(samples.histogram().iter().map(|(_, count)| count).sum::<u64>(), 5000);
    for sample in [1_u64, 7, 8, 9, 1000, 123_456] {
        let bound = upper_bound(sample);
        assert!(bound >= sample && bound <= sample + sample / 8 + 1, "{sample} -> {bound}");
    }
}
