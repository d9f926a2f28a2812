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
pub struct Seen {
    /// The host launched it.
    pub launched_ns: u64,
    /// The host released it.
    pub released_ns: u64,
    /// It began, by the GPU's clock.
    pub began_gpu_ns: u64,
    /// It saw the release, by the GPU's clock.
    pub ended_gpu_ns: u64,
}

impl Seen {
    /// How long it had the GPU, by the GPU's clock; 0 for numbers that cannot be.
    pub fn held_ns(self) -> u64 {
        self.ended_gpu_ns.saturating_sub(self.began_gpu_ns)
    }

    /// From launch to begin. The two clocks meet where the hold ends: a GPU sees a release some microseconds after the
    /// host's store, whatever its clock says. `None` for numbers that cannot be.
    fn took_ns(self) -> Option<u64> {
        let on_host = self.released_ns.checked_sub(self.launched_ns)?;
        let on_gpu = self.ended_gpu_ns.checked_sub(self.began_gpu_ns)?;
        // Released before it began: it took at least as long as that.
        Some(on_host.saturating_sub(on_gpu))
    }
}

/// What a hold takes to get the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    ns: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { ns: ASSUMED_NS }
    }
}

impl Cost {
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
    pub(super) fn is_of_a_switch(self) -> bool {
        self.ns > SWITCH_NS
    }

    /// One more hold.
    pub(super) fn learn(&mut self, seen: Seen) {
        let Some(took) = seen.took_ns() else { return };
        let error = took as f64 - self.ns;
        let part = if error < 0.0 { PARTS.0 } else { PARTS.1 };
        self.ns = (self.ns + part * error).clamp(BOUNDS_NS.0, BOUNDS_NS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hold that got the GPU after `took`, and was held for 100 us; the GPU's clock is far from the host's.
    fn hold(took: u64) -> Seen {
        let launched_ns = 5_000_000;
        let began_gpu_ns = 1_700_000_000_000_000_000;
        Seen {
            launched_ns,
            released_ns: launched_ns + took + 100_000,
            began_gpu_ns,
            ended_gpu_ns: began_gpu_ns + 100_000,
        }
    }

    #[test]
    fn the_cost_is_what_was_measured_whatever_the_gpus_clock_says() {
        let mut cost = Cost::default();
        (0..200).for_each(|_| cost.learn(hold(170_000)));
        assert!((cost.ns() - 170_000.0).abs() < 1_000.0, "{}", cost.ns());
    }

    #[test]
    fn a_late_hold_raises_it_faster_than_an_early_one_lowers_it() {
        let mut cost = Cost::default();
        (0..200).for_each(|_| cost.learn(hold(170_000)));
        cost.learn(hold(370_000));
        assert!(cost.ns() > 260_000.0);
        cost.learn(hold(170_000));
        assert!(cost.ns() > 250_000.0);
    }

    #[test]
    fn an_idle_gpu_is_told_from_one_that_is_taken_away() {
        let mut cost = Cost::default();
        (0..50).for_each(|_| cost.learn(hold(8_000)));
        assert!(!cost.is_of_a_switch());
        (0..3).for_each(|_| cost.learn(hold(170_000)));
        assert!(cost.is_of_a_switch());
    }

    #[test]
    fn numbers_that_cannot_be_change_nothing() {
        let mut cost = Cost::default();
        cost.learn(Seen { launched_ns: 9, released_ns: 1, began_gpu_ns: 0, ended_gpu_ns: 1 });
        cost.learn(Seen { launched_ns: 1, released_ns: 9, began_gpu_ns: 5, ended_gpu_ns: 1 });
        assert_eq!(cost.ns(), ASSUMED_NS);
    }
}
