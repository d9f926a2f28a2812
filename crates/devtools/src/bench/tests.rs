use super::*;

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
    assert_eq!(median(vec![]), 0.0);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
}

#[test]
fn percentiles_are_in_the_requested_unit() {
    let samples: Samples = (1..=100).map(|us| us * 1000).collect();
    assert_eq!(Percentiles::of(&samples, 1e3), Percentiles { p50: 50.0, p99: 99.0 });
}
