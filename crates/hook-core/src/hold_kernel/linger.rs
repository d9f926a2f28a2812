//! Learns how long a hold kernel is to stay after a burst of work, in case the request continues.

/// Weight of one gap in the means.
const WEIGHT: f64 = 1.0 / 16.0;

/// A switch that is not avoided delays the latency-critical program as well as the others, so a long gap costs half as much as a switch.
const COST_OF_LINGERING: f64 = 0.5;

/// The gaps between two bursts of work of a process: from the end of one to the next copy or launch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Linger {
    /// The fraction of short gaps, and their mean length.
    short: f64,
    mean_short_ns: f64,
}

impl Linger {
    /// Records a gap. It is short if it took less than `switches_ns`, the time of a switch there and back.
    pub(super) fn learn(&mut self, gap_ns: u64, switches_ns: f64) {
        let is_short = (gap_ns as f64) < switches_ns;
        self.short += WEIGHT * (f64::from(u8::from(is_short)) - self.short);
        if is_short {
            let first = self.mean_short_ns == 0.0;
            self.mean_short_ns += if first { 1.0 } else { WEIGHT } * (gap_ns as f64 - self.mean_short_ns);
        }
    }

    /// Records a gap over which no hold kernel can last: the program waited for its whole context.
    pub(super) fn learn_interrupted(&mut self) {
        self.short -= WEIGHT * self.short;
    }

    /// How long to stay: 0 unless short gaps save more time than long ones cost.
    pub(super) fn ns(self, switches_ns: f64) -> u64 {
        let saved = self.short * (switches_ns - self.mean_short_ns);
        let lost = (1.0 - self.short) * switches_ns * COST_OF_LINGERING;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most some milliseconds"
        )]
        if saved > lost { switches_ns as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHES_NS: f64 = 300_000.0;

    fn after(gaps: impl IntoIterator<Item = u64>) -> u64 {
        let mut linger = Linger::default();
        gaps.into_iter().for_each(|us| linger.learn(us * 1_000, SWITCHES_NS));
        linger.ns(SWITCHES_NS)
    }

    #[test]
    fn short_gaps_of_a_token_loop_make_hold_kernels_linger() {
        let tokens = |_| [[50; 46].as_slice(), &[100_000]].concat();
        assert_eq!(after((0..4).flat_map(tokens)), 300_000);
        assert_eq!(after([50; 12]), 300_000, "within the first request");
    }

    #[test]
    fn long_gaps_or_short_ones_that_are_hardly_shorter_do_not() {
        assert_eq!(after([9_000; 100]), 0);
        assert_eq!(after([280; 100].into_iter().chain([9_000; 2])), 0);
        assert_eq!(after((0..200).map(|at| if at % 4 == 0 { 50 } else { 9_000 })), 0);
        let mut linger = Linger::default();
        (0..100).for_each(|_| linger.learn(50_000, SWITCHES_NS));
        (0..100).for_each(|_| linger.learn_interrupted());
        assert_eq!(linger.ns(SWITCHES_NS), 0);
    }
}
