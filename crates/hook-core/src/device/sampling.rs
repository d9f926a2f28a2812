//! Which bursts of a latency-critical process events measure. Each measured burst costs driver calls within a request, so they are rare.

/// Time after a change of contenders after which the second burst is measured. The interval doubles until it is [`LONGEST_NS`].
const SHORTEST_NS: u64 = 20_000_000;

/// Least time between two measured bursts while the number of contenders does not change.
const LONGEST_NS: u64 = 5_000_000_000;

/// When the next burst of an unlimited grant is measured.
#[derive(Debug, Default)]
pub(super) struct BurstSampling {
    contenders: u64,
    /// When the interval may become the shortest again. Contenders that come and go do not make measurements frequent.
    restart_ns: u64,
    next_ns: u64,
    interval_ns: u64,
}

impl BurstSampling {
    /// Whether the burst that begins at `now`, beside this number of contenders, is to be measured. Without contenders none is.
    pub(super) fn is_due(&mut self, contenders: u64, now: u64) -> bool {
        if contenders == 0 {
            return false;
        }
        if contenders != self.contenders && now >= self.restart_ns {
            self.contenders = contenders;
            self.restart_ns = now.saturating_add(2 * LONGEST_NS);
            (self.next_ns, self.interval_ns) = (now, SHORTEST_NS);
        }
        if now < self.next_ns {
            return false;
        }
        self.next_ns = now.saturating_add(self.interval_ns);
        self.interval_ns = self.interval_ns.saturating_mul(2).min(LONGEST_NS);
        true
    }
}

#[cfg(test)]
mod tests;
