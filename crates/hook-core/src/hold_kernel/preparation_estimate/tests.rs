use super::*;

fn after(values: &[f64]) -> ExpectedTime {
    let mut estimate = PreparationEstimate::default();
    values.iter().for_each(|value| estimate.learn(*value, 1e7));
    estimate.expected().expect("values were recorded")
}

#[test]
fn steady_values_give_their_mean_and_the_least_margin() {
    let steady = after(&[300_000.0; 64]);
    assert!((steady.mean_ns - 300_000.0).abs() < 1.0);
    assert_eq!(steady.margin_ns, MIN_MARGIN_NS);
}

#[test]
fn the_margin_grows_with_the_error() {
    let wavering: Vec<f64> = (0..64).map(|at| if at % 2 == 0 { 200_000.0 } else { 400_000.0 }).collect();
    let wavering = after(&wavering);
    assert!((wavering.mean_ns - 300_000.0).abs() < 30_000.0);
    assert!(wavering.margin_ns > 300_000.0, "{wavering:?}");
}

#[test]
fn one_long_pause_moves_the_mean_by_a_limited_step() {
    let mut estimate = PreparationEstimate::default();
    (0..64).for_each(|_| estimate.learn(300_000.0, 8e6));
    estimate.learn(1e10, 8e6);
    let mean = estimate.expected().expect("values were recorded").mean_ns;
    assert!(mean < 1_300_000.0, "an eighth of the limit, not of the pause: {mean}");
}

#[test]
fn nothing_is_expected_before_the_first_value() {
    assert_eq!(PreparationEstimate::default().expected(), None);
}
