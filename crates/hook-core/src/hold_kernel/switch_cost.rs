//! How long it takes a hold to get the GPU: measured from what the holds themselves write down.

/// Before anything was measured: two context switches of the largest kind.
const ASSUMED_NS: f64 = 350_000.0;

/// Where the estimate stays whatever is measured.
const BOUNDS_NS: (f64, f64) = (50_000.0, 1_000_000.0);

/// Above this another process had the GPU.
const SWITCH_NS: f64 = 110_000.0;

/// How much a hold that came sooner than expected lowers the estimate, and one that came later raises it: late is worse.
const PARTS: (f64, f64) = (1.0 / 16.0, 1.0 / 2.0);

/// The two ends of a hold, each by the host's clock and by the GPU's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// The host launched it.
    pub launched_ns: u64,
    /// The host released it.
    pub released_ns: u64,
    /// It began, by the GPU's clock.
    pub began_gpu_ns: u64,
    /// It saw the release, by the GPU's clock.
    pub ended_gpu_ns: u64,
}

impl HoldTimes {
    /// How long it had the GPU, by the GPU's clock; 0 for numbers that cannot be.
    pub fn held_ns(self) -> u64 {
        self.ended_gpu_ns.saturating_sub(self.began_gpu_ns)
    }

    /// From launch to begin. The two clocks meet where the hold ends: a GPU sees a release some microseconds after the
    /// host's store, whatever its clock says. `None` for numbers that cannot be.
    fn switch_ns(self) -> Option<u64> {
        let on_host = self.released_ns.checked_sub(self.launched_ns)?;
        let on_gpu = self.ended_gpu_ns.checked_sub(self.began_gpu_ns)?;
        // Released before it began: it took at least as long as that.
        Some(on_host.saturating_sub(on_gpu))
    }
}

/// What a hold takes to get the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwitchCost {
    ns: f64,
}

impl Default for SwitchCost {
    fn default() -> Self {
        Self { ns: ASSUMED_NS }
    }
}

impl SwitchCost {
    pub(super) fn ns(self) -> f64 {
        self.ns
    }

    /// The same, in whole nanoseconds.
    pub(super) fn whole_ns(self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within its bounds")]
        {
            self.ns as u64
        }
    }

    /// Whether somebody had to be switched out, as far as was seen: an idle GPU is ours within microseconds.
    pub(super) fn shows_contention(self) -> bool {
        self.ns > SWITCH_NS
    }

    /// One more hold.
    pub(super) fn learn(&mut self, seen: HoldTimes) {
        let Some(took) = seen.switch_ns() else { return };
        let error = took as f64 - self.ns;
        let part = if error < 0.0 { PARTS.0 } else { PARTS.1 };
        self.ns = (self.ns + part * error).clamp(BOUNDS_NS.0, BOUNDS_NS.1);
    }
}

#[cfg(test)]
#[path = "switch_cost_tests.rs"]
mod tests;
