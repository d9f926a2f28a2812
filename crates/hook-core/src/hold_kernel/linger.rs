//! Learns how long a hold kernel is to stay after a burst of work, in case the request continues or the next one has been waiting.

/// Weight of one gap in the means that decide about the time of a switch there and back.
const WEIGHT: f64 = 1.0 / 16.0;

/// A switch that is not avoided delays the latency-critical program as well as the others, so a long gap costs half as much as a switch.
const COST_OF_LINGERING: f64 = 0.5;

/// Shorter linger times, as parts of a switch there and back. If requests come at random times, a few of them wait in the program until
/// the one before has ended. Their gap is the program's own time between two requests, some ten microseconds.
const PARTS: [f64; 3] = [0.125, 0.25, 0.5];

/// Weight of one gap for a shorter linger time. It has to tell a tenth of short gaps from none: with this weight the standard deviation of
/// that estimate is 0.02.
const PART_WEIGHT: f64 = 1.0 / 128.0;

/// How often a saved nanosecond counts for a shorter linger time. A measured service of 0.25 ms had 2.1 to 2.4 times its p99 alone with 1 and
/// 2, and 1.4 to 1.5 times with 4, while best effort had the same. With 8, hold kernels would stay for random gaps, at which no other
/// request waits.
const SAVED_WEIGHT: f64 = 4.0;

/// A gap is bridged if it is shorter than the linger time by more than this. The GPU sees the host's store some microseconds later. A hold
/// kernel that ends just before the next call is worse than none: the switch to the other process has then just begun.
const MARGIN_NS: f64 = 10_000.0;

/// What a linger time that is shorter than a switch there and back would have gained.
#[derive(Debug, Clone, Copy, Default)]
struct PartialLinger {
    /// The fraction of gaps that it bridges.
    bridged: f64,
    /// The mean time saved, over all gaps.
    saved_ns: f64,
}

impl PartialLinger {
    fn learn(&mut self, is_bridged: bool, saved_ns: f64) {
        self.bridged += PART_WEIGHT * (f64::from(u8::from(is_bridged)) - self.bridged);
        self.saved_ns += PART_WEIGHT * (if is_bridged { saved_ns } else { 0.0 } - self.saved_ns);
    }

    fn net_ns(self, length_ns: f64) -> f64 {
        SAVED_WEIGHT * self.saved_ns - (1.0 - self.bridged) * length_ns * COST_OF_LINGERING
    }
}

/// The gaps between two bursts of work of a process: from the end of one to the next copy or launch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linger {
    /// The fraction of short gaps, and their mean length.
    short: f64,
    mean_short_ns: f64,
    partial: [PartialLinger; PARTS.len()],
}

impl Linger {
    /// Records a gap. It is short if it took less than `switches_ns`, the time of a switch there and back.
    pub fn learn(&mut self, gap_ns: u64, switches_ns: f64) {
        let gap_ns = gap_ns as f64;
        let is_short = gap_ns < switches_ns;
        self.short += WEIGHT * (f64::from(u8::from(is_short)) - self.short);
        if is_short {
            let first = self.mean_short_ns == 0.0;
            self.mean_short_ns += if first { 1.0 } else { WEIGHT } * (gap_ns - self.mean_short_ns);
        }
        for (partial, part) in self.partial.iter_mut().zip(PARTS) {
            partial.learn(gap_ns + MARGIN_NS < part * switches_ns, switches_ns - gap_ns);
        }
    }

    /// Records a gap over which no hold kernel can last: the program waited for its whole context.
    pub(super) fn learn_interrupted(&mut self) {
        self.short -= WEIGHT * self.short;
        self.partial.iter_mut().for_each(|partial| partial.learn(false, 0.0));
    }

    /// How long to stay. The time of a switch there and back if short gaps save more time than long ones cost; otherwise the part of it that
    /// gains most, if any does.
    pub fn ns(self, switches_ns: f64) -> u64 {
        let saved = self.short * (switches_ns - self.mean_short_ns);
        let lost = (1.0 - self.short) * switches_ns * COST_OF_LINGERING;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most some milliseconds"
        )]
        if saved > lost { switches_ns as u64 } else { self.partial_ns(switches_ns) as u64 }
    }

    fn partial_ns(self, switches_ns: f64) -> f64 {
        let nets = self.partial.iter().zip(PARTS).map(|(partial, part)| {
            let length_ns = part * switches_ns;
            (partial.net_ns(length_ns), length_ns)
        });
        let best = nets.filter(|(net_ns, _)| *net_ns > 0.0).max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(0.0, |(_, length_ns)| length_ns)
    }
}

#[cfg(test)]
mod tests;
