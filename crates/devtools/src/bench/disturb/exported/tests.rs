use super::*;

/// Samples each 0.2 s of a client that has half of the GPU, with exported seconds that grow at `rate` in steps of `step` seconds.
fn samples(rate: f64, step: f64, (share, ledger_share): (f64, f64)) -> Vec<Sample> {
    let sample = |number: u64| {
        let at = number as f64 * 0.2;
        let seconds = (at * rate / step).floor() * step;
        let clients =
            vec![Exported { seconds, hold_seconds: 0.0, share, ledger_seconds: at * 0.5, ledger_share }];
        Sample { at_ns: number * 200_000_000, clients }
    };
    (0..40).map(sample).collect()
}

#[test]
fn a_counter_that_follows_the_ledger_in_steps_of_a_grant_is_within_half_a_point() {
    let found = compare(&samples(0.5, 0.07, (0.5, 0.5))).unwrap();
    let (rate, share) = largest(&found);
    assert!(rate < 0.5, "{found:?}");
    assert!(share < 1e-9, "{found:?}");
}

#[test]
fn a_counter_that_grows_too_slowly_is_found() {
    let found = compare(&samples(0.47, 0.07, (0.5, 0.5))).unwrap();
    assert!((-3.5..-2.5).contains(&found[0].rate_points), "{found:?}");
}

#[test]
fn a_share_of_everything_beside_a_ledger_of_nothing_is_a_hundred_points_off() {
    let found = compare(&samples(0.5, 0.07, (1.0, 0.0))).unwrap();
    assert!((found[0].share_points - 100.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn hold_kernels_of_the_window_are_part_of_the_exported_share() {
    let mut samples = samples(0.5, 0.07, (0.48, 0.5));
    for sample in &mut samples {
        // 2 % of the time, and more before the first sample.
        sample.clients[0].hold_seconds = 3.0 + 0.02 * sample.at_ns as f64 / 1e9;
    }
    let found = compare(&samples).unwrap();
    assert!(found[0].share_points.abs() < 1e-6, "{found:?}");
}

#[test]
fn the_gain_over_a_run_contains_what_was_charged_meanwhile() {
    let samples = samples(0.5, 0.01, (0.5, 0.5));
    let mut last = samples[39].clone();
    last.clients[0].seconds += 0.78;
    let gained = gained(&samples[0], &last)[0];
    assert!((gained - 10.0).abs() < 0.2, "{gained}");
}

#[test]
fn few_samples_are_no_comparison() {
    assert_eq!(compare(&samples(0.5, 0.07, (0.5, 0.5))[..8]), None);
}
