//! Quantiles of the waiting times, from the histogram of a pod-manager.

/// The buckets of a histogram: upper bounds in seconds, and how many waits were at most as long.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WaitBuckets(Vec<(f64, f64)>);

impl WaitBuckets {
    pub(super) fn add(&mut self, bound: Option<f64>, waits: f64) {
        self.0.extend(bound.map(|bound| (bound, waits)));
    }

    /// The waiting time that this part of the waits did not exceed, as Prometheus's `histogram_quantile` interpolates it. `None`
    /// without a wait.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        let (_, all) = self.0.last().copied().filter(|(_, all)| *all > 0.0)?;
        let rank = part * all;
        let mut below = (0.0, 0.0);
        for &(bound, waits) in &self.0 {
            if waits >= rank && waits > below.1 {
                // Above the highest bound nothing is known.
                let within = (rank - below.1) / (waits - below.1);
                return Some(if bound.is_finite() { below.0 + within * (bound - below.0) } else { below.0 });
            }
            below = (if bound.is_finite() { bound } else { below.0 }, waits);
        }
        None
    }
}
