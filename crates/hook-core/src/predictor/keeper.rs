//! A sliding window of durations that answers a quantile of what it holds.
//!
//! Gemini keeps the maximum of the window, its later version the 90th percentile; both are quantiles of the same sorted
//! window, so one keeper serves both.

use std::collections::VecDeque;

/// How long a record counts, in whole milliseconds (Gemini's `PREDICT_MAX_KEEP`).
pub const KEEP_MS: u64 = 3000;

/// Records kept at most. A program with microsecond bursts would otherwise fill memory; 1,024 of them say as much.
pub const CAPACITY: usize = 1024;

/// Which value of the window is the prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantile {
    /// The 90th percentile: the record at index `round((n - 1) * 0.9)` of the sorted window.
    #[default]
    P90,
    /// The largest record.
    Maximum,
}

/// Durations of the last [`KEEP_MS`], at most [`CAPACITY`] of them.
#[derive(Debug)]
pub struct Keeper {
    by_age: VecDeque<(u64, f64)>,
    sorted: Vec<f64>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { by_age: VecDeque::with_capacity(CAPACITY), sorted: Vec::with_capacity(CAPACITY) }
    }
}

impl Keeper {
    /// Adds a duration of `value_ms` that ended at `now_ns`.
    ///
    /// Values that are not finite are dropped: they would poison every later prediction.
    pub fn add(&mut self, now_ns: u64, value_ms: f64) {
        if !value_ms.is_finite() {
            return;
        }
        self.expire(now_ns);
        if self.by_age.len() == CAPACITY {
            self.drop_oldest();
        }
        self.by_age.push_back((now_ns, value_ms));
        let at = self.sorted.partition_point(|kept| *kept < value_ms);
        self.sorted.insert(at, value_ms);
    }

    /// The chosen quantile of the records not older than [`KEEP_MS`], in milliseconds; 0 without records.
    pub fn predict(&mut self, now_ns: u64, quantile: Quantile) -> f64 {
        self.expire(now_ns);
        let index = match (self.sorted.len(), quantile) {
            (0, _) => return 0.0,
            (n, Quantile::Maximum) => n - 1,
            // round((n - 1) * 0.9) in whole numbers: half away from zero, as C's round().
            (n, Quantile::P90) => ((n - 1) * 9 + 5) / 10,
        };
        self.sorted.get(index).copied().unwrap_or(0.0)
    }

    /// The lower median, in milliseconds: what is typical rather than what is possible.
    pub fn median(&mut self, now_ns: u64) -> f64 {
        self.expire(now_ns);
        let index = self.sorted.len().saturating_sub(1) / 2;
        self.sorted.get(index).copied().unwrap_or(0.0)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.by_age.clear();
        self.sorted.clear();
    }

    fn expire(&mut self, now_ns: u64) {
        while let Some((at_ns, _)) = self.by_age.front() {
            if now_ns.saturating_sub(*at_ns) / 1_000_000 <= KEEP_MS {
                break;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, value)) = self.by_age.pop_front() {
            let at = self.sorted.partition_point(|kept| *kept < value);
            if at < self.sorted.len() {
                self.sorted.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_empty_window_predicts_nothing() {
        assert_eq!(Keeper::default().predict(5, Quantile::P90), 0.0);
        assert_eq!(Keeper::default().median(5), 0.0);
    }

    #[test]
    fn a_record_counts_for_three_seconds_and_the_millisecond_it_is_in() {
        let mut keeper = Keeper::default();
        keeper.add(0, 7.0);
        assert_eq!(keeper.predict(3000 * MS + 999_999, Quantile::Maximum), 7.0);
        assert_eq!(keeper.predict(3001 * MS, Quantile::Maximum), 0.0);
    }

    #[test]
    fn the_percentile_leaves_one_outlier_in_eleven_out() {
        let mut keeper = Keeper::default();
        for _ in 0..10 {
            keeper.add(0, 1.0);
        }
        keeper.add(0, 100.0);
        assert_eq!(keeper.predict(0, Quantile::P90), 1.0);
        assert_eq!(keeper.predict(0, Quantile::Maximum), 100.0);
    }

    #[test]
    fn a_value_that_is_no_number_is_not_kept() {
        let mut keeper = Keeper::default();
        keeper.add(0, f64::NAN);
        keeper.add(0, f64::INFINITY);
        assert_eq!(keeper.predict(0, Quantile::Maximum), 0.0);
    }

    /// What the window should answer, by sorting a copy of everything ever recorded.
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
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index below 1024"
            )]
            Quantile::P90 => window[((last as f64) * 0.9).round() as usize],
        }
    }

    proptest! {
        #[test]
        fn the_window_answers_as_a_sorted_copy_would(
            steps in proptest::collection::vec((0u64..400 * MS, 0.0f64..500.0), 1..200),
            wait in 0u64..4000 * MS,
        ) {
            let mut keeper = Keeper::default();
            let mut records = Vec::new();
            let mut now = 0;
            for (pause, value) in steps {
                now += pause;
                keeper.add(now, value);
                records.push((now, value));
                for quantile in [Quantile::P90, Quantile::Maximum] {
                    prop_assert_eq!(keeper.predict(now, quantile), naive(&records, now, quantile));
                }
            }
            now += wait;
            prop_assert_eq!(keeper.predict(now, Quantile::P90), naive(&records, now, Quantile::P90));
        }

        #[test]
        fn a_full_window_forgets_the_oldest_first(values in proptest::collection::vec(0.0f64..9.0, CAPACITY..CAPACITY + 300)) {
            let mut keeper = Keeper::default();
            let mut records = Vec::new();
            for value in values {
                keeper.add(0, value);
                records.push((0, value));
            }
            prop_assert_eq!(keeper.predict(0, Quantile::Maximum), naive(&records, 0, Quantile::Maximum));
            prop_assert_eq!(keeper.predict(0, Quantile::P90), naive(&records, 0, Quantile::P90));
        }
    }
}
