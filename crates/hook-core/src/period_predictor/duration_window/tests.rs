use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[test]
fn an_empty_window_predicts_nothing() {
    assert_eq!(DurationWindow::default().predict(5, Quantile::P90), 0.0);
    assert_eq!(DurationWindow::default().median(5), 0.0);
}

#[test]
fn record_expires_after_three_seconds_and_its_millisecond() {
    let mut records_window = DurationWindow::default();
    records_window.add(0, 7.0);
    assert_eq!(records_window.predict(3000 * MS + 999_999, Quantile::Maximum), 7.0);
    assert_eq!(records_window.predict(3001 * MS, Quantile::Maximum), 0.0);
}

#[test]
fn the_percentile_leaves_one_outlier_in_eleven_out() {
    let mut records_window = DurationWindow::default();
    for _ in 0..10 {
        records_window.add(0, 1.0);
    }
    records_window.add(0, 100.0);
    assert_eq!(records_window.predict(0, Quantile::P90), 1.0);
    assert_eq!(records_window.predict(0, Quantile::Maximum), 100.0);
}

#[test]
fn value_that_is_not_finite_is_dropped() {
    let mut records_window = DurationWindow::default();
    records_window.add(0, f64::NAN);
    records_window.add(0, f64::INFINITY);
    assert_eq!(records_window.predict(0, Quantile::Maximum), 0.0);
}

/// The expected quantile, by sorting a copy of all records.
fn naive(records: &[(u64, f64)], now_ns: u64, quantile: Quantile) -> f64 {
    let mut window: Vec<f64> = records
        .iter()
        .rev()
        .take(CAPACITY)
        .filter(|(at, _)| (now_ns - at) / MS <= KEEP_MS)
        .map(|(_, value)| *value)
        .collect();
    window.sort_by(f64::total_cmp);
    let Some(last) = window.len().checked_sub(1) else { return 0.0 };
    match quantile {
        Quantile::Maximum => window[last],
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below 1024")]
        Quantile::P90 => window[((last as f64) * 0.9).round() as usize],
    }
}

proptest! {
    #[test]
    fn quantile_equals_that_of_a_sorted_copy(
        steps in proptest::collection::vec((0u64..400 * MS, 0.0f64..500.0), 1..200),
        wait in 0u64..4000 * MS,
    ) {
        let mut records_window = DurationWindow::default();
        let mut records = Vec::new();
        let mut now = 0;
        for (pause, value) in steps {
            now += pause;
            records_window.add(now, value);
            records.push((now, value));
            for quantile in [Quantile::P90, Quantile::Maximum] {
                prop_assert_eq!(records_window.predict(now, quantile), naive(&records, now, quantile));
            }
        }
        now += wait;
        prop_assert_eq!(records_window.predict(now, Quantile::P90), naive(&records, now, Quantile::P90));
    }

    #[test]
    fn a_full_window_forgets_the_oldest_first(values in proptest::collection::vec(0.0f64..9.0, CAPACITY..CAPACITY + 300)) {
        let mut records_window = DurationWindow::default();
        let mut records = Vec::new();
        for value in values {
            records_window.add(0, value);
            records.push((0, value));
        }
        prop_assert_eq!(records_window.predict(0, Quantile::Maximum), naive(&records, 0, Quantile::Maximum));
        prop_assert_eq!(records_window.predict(0, Quantile::P90), naive(&records, 0, Quantile::P90));
    }
}
