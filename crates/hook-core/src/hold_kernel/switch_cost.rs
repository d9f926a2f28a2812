//! Estimates how long a hold kernel takes to get the GPU, from the times that hold kernels record.

/// Initial estimate: two context switches of the largest kind.
const INITIAL_NS: f64 = 350_000.0;

/// Bounds of the estimate.
const BOUNDS_NS: (f64, f64) = (50_000.0, 1_000_000.0);

/// Above this time another process had the GPU.
const CONTENTION_NS: f64 = 110_000.0;

/// Weights of a hold kernel that got the GPU sooner than expected, and of one that got it later. Being late costs more.
const WEIGHTS: (f64, f64) = (1.0 / 16.0, 1.0 / 2.0);

/// Launch and begin of a hold kernel and the first change of the activity, by the host's clock and by the GPU's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// When the host launched it.
    pub launched_ns: u64,
    /// When the host first changed the activity.
    pub changed_ns: u64,
    /// When it began, by the GPU's clock.
    pub began_gpu_ns: u64,
    /// When it saw that change, by the GPU's clock.
    pub seen_gpu_ns: u64,
}

impl HoldTimes {
    /// Time from launch to begin. The two clocks are related at the change: a GPU sees it some microseconds after the host's store. `None`
    /// for inconsistent times.
    fn switch_ns(self) -> Option<u64> {
        let on_host = self.changed_ns.checked_sub(self.launched_ns)?;
        let on_gpu = self.seen_gpu_ns.checked_sub(self.began_gpu_ns)?;
        // If the change came before it began, this is a lower bound.
        Some(on_host.saturating_sub(on_gpu))
    }
}

/// The estimate of the time until a hold kernel gets the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwitchCost {
    ns: f64,
}

impl Default for SwitchCost {
    fn default() -> Self {
        Self { ns: INITIAL_NS }
    }
}

impl SwitchCost {
    pub(super) fn ns(self) -> f64 {
        self.ns
    }

    /// The estimate in whole nanoseconds.
    pub(super) fn whole_ns(self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within its bounds")]
        {
            self.ns as u64
        }
    }

    /// Whether another process had to be switched out: an idle GPU is available within microseconds.
    pub(super) fn shows_contention(self) -> bool {
        self.ns > CONTENTION_NS
    }

    /// Records one more hold kernel.
    pub(super) fn learn(&mut self, seen: HoldTimes) {
        let Some(took) = seen.switch_ns() else { return };
        let error = took as f64 - self.ns;
        let part = if error < 0.0 { WEIGHTS.0 } else { WEIGHTS.1 };
        self.ns = (self.ns + part * error).clamp(BOUNDS_NS.0, BOUNDS_NS.1);
    }
}

#[cfg(test)]
mod tests;
