//! A sliding window of durations that returns a quantile of its records.
//!
//! Gemini keeps the maximum of the window, its later version the 90th percentile. Both are quantiles of the same sorted window.

use std::collections::VecDeque;

/// How long a record counts, in whole milliseconds (Gemini's `PREDICT_MAX_KEEP`).
pub const KEEP_MS: u64 = 3000;

/// Maximum number of records. A program with microsecond bursts would otherwise fill memory; 1,024 records suffice for a quantile.
pub const CAPACITY: usize = 1024;

/// The value of the window that is the prediction.
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
pub struct DurationWindow {
    by_age: VecDeque<(u64, f64)>,
    sorted: Vec<f64>,
}

impl Default for DurationWindow {
    fn default() -> Self {
        Self { by_age: VecDeque::with_capacity(CAPACITY), sorted: Vec::with_capacity(CAPACITY) }
    }
}

impl DurationWindow {
    /// Adds a duration of `value_ms` that ended at `now_ns`.
    ///
    /// Values that are not finite are dropped: they would spoil every later prediction.
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

    /// The lower median, in milliseconds: the typical value.
    pub fn median(&mut self, now_ns: u64) -> f64 {
        self.expire(now_ns);
        let index = self.sorted.len().saturating_sub(1) / 2;
        self.sorted.get(index).copied().unwrap_or(0.0)
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
mod tests;
