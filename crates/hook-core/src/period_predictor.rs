//! Predicts how long GPU work will run (bursts) and how long it will pause (windows).
//!
//! A predictor is told when periods begin and end. It records two kinds of lengths: *single* periods, and *merged* ones. In a merged
//! period, periods that follow each other within a threshold count as one long period, which grows with each stop.

mod duration_window;

pub use duration_window::{CAPACITY, DurationWindow, KEEP_MS, Quantile};

/// Two bursts less than this apart count as one long burst, in milliseconds.
pub const BURST_MERGE_MS: f64 = 2.0;

/// Windows are never merged.
pub const WINDOW_MERGE_MS: f64 = 0.0;

/// Below this a burst prediction means "unknown".
const NO_BURST_MS: f64 = 1e-9;

/// A program with shorter windows keeps the GPU nearly always busy, so its quota probably cut its last burst.
const BUSY_WINDOW_MS: f64 = 2.0;

/// Learns the length of periods from their starts and stops.
#[derive(Debug, Default)]
pub struct PeriodPredictor {
    merge_ms: f64,
    quantile: Quantile,
    begin_ns: Option<u64>,
    long_begin_ns: Option<u64>,
    long_end_ns: Option<u64>,
    single: DurationWindow,
    merged: DurationWindow,
}

impl PeriodPredictor {
    /// A predictor that merges periods not more than `merge_ms` apart and returns `quantile`.
    pub fn new(merge_ms: f64, quantile: Quantile) -> Self {
        Self { merge_ms, quantile, ..Self::default() }
    }

    /// Begins a period; without effect while one runs.
    pub fn record_start(&mut self, now_ns: u64) {
        if self.begin_ns.is_some() {
            return;
        }
        self.begin_ns = Some(now_ns);
        let pause_is_short = self.long_end_ns.is_some_and(|end| ms_between(end, now_ns) <= self.merge_ms);
        if self.long_begin_ns.is_none() || (self.long_end_ns.is_some() && !pause_is_short) {
            self.long_begin_ns = Some(now_ns);
            self.long_end_ns = None;
        }
    }

    /// Ends the running period; without effect while none runs.
    pub fn record_stop(&mut self, now_ns: u64) {
        let Some(begin) = self.begin_ns.take() else { return };
        self.single.add(now_ns, ms_between(begin, now_ns));
        self.long_end_ns = Some(now_ns);
        if let Some(long_begin) = self.long_begin_ns {
            self.merged.add(now_ns, ms_between(long_begin, now_ns));
        }
    }

    /// Forgets the running period, single and merged, and keeps the records.
    pub fn interrupt(&mut self) {
        self.begin_ns = None;
        self.long_begin_ns = None;
        self.long_end_ns = None;
    }

    /// Expected length of one period, in milliseconds; 0 if unknown.
    pub fn predict_single(&mut self, now_ns: u64) -> f64 {
        self.single.predict(now_ns, self.quantile)
    }

    /// Expected length of a chain of periods, in milliseconds; 0 if unknown.
    pub fn predict_merged(&mut self, now_ns: u64) -> f64 {
        self.merged.predict(now_ns, self.quantile)
    }

    /// Median length of one period, in milliseconds; 0 if unknown.
    pub fn predict_median(&mut self, now_ns: u64) -> f64 {
        self.single.median(now_ns)
    }

    /// When the running period began.
    pub fn running_since(&self) -> Option<u64> {
        self.begin_ns
    }
}

/// How long the program would use the GPU without a quota, in milliseconds, from both merged predictions.
///
/// 0 if no burst is known. Doubled for a program that hardly ever pauses, because the quota cut its bursts.
pub fn estimate_full_burst(burst_ms: f64, window_ms: f64) -> f64 {
    if burst_ms < NO_BURST_MS {
        0.0
    } else if window_ms < BUSY_WINDOW_MS {
        burst_ms * 2.0
    } else {
        burst_ms
    }
}

/// Milliseconds from `from_ns` to `to_ns`, at microsecond resolution; 0 if time ran backwards.
fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns.saturating_sub(from_ns) / 1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests;
