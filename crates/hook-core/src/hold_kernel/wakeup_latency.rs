//! Estimates how late a sleeping thread wakes up, so that it can ask to be woken earlier.
//!
//! A thread that sleeps on an idle processor wakes late, by a varying time of tens or hundreds of microseconds. So the thread asks to be
//! woken earlier by its usual lateness, and then polls the clock until the time has come.

/// Initial estimate, in nanoseconds.
const INITIAL_NS: f64 = 100_000.0;

/// Time that is polled beyond the usual lateness, in nanoseconds.
const MARGIN_NS: f64 = 10_000.0;

/// Least and usual greatest estimate, and the greatest one of all. The greatest estimate is a sixteenth of the time between two wake-ups,
/// within the latter two: so long may polling keep a processor from other threads.
const BOUNDS_NS: (f64, f64, f64) = (MARGIN_NS, 300_000.0, 800_000.0);
const INTERVAL_PARTS: u64 = 16;

/// Weight of a wake-up that was earlier than expected. A later one counts in full.
const EARLIER_WEIGHT: f64 = 1.0 / 64.0;

/// The estimate of a thread's lateness.
#[derive(Debug, Clone, Copy)]
pub struct WakeupLatency {
    ahead_ns: f64,
    /// The time for which the last wake-up was asked.
    last_ns: u64,
}

impl WakeupLatency {
    /// The initial estimate.
    pub const fn initial() -> Self {
        Self { ahead_ns: INITIAL_NS, last_ns: 0 }
    }

    /// When to be woken for an event that is due at `due_ns`.
    pub fn wake_at(&self, due_ns: u64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
        due_ns.saturating_sub(self.ahead_ns as u64)
    }

    /// Records a wake-up that was asked for `asked_ns` and came at `now_ns`.
    pub fn learn(&mut self, asked_ns: u64, now_ns: u64) {
        let ahead_ns = now_ns.saturating_sub(asked_ns) as f64 + MARGIN_NS;
        let sooner = ahead_ns < self.ahead_ns;
        self.ahead_ns += if sooner { EARLIER_WEIGHT } else { 1.0 } * (ahead_ns - self.ahead_ns);
        let between = asked_ns.saturating_sub(self.last_ns) / INTERVAL_PARTS;
        self.last_ns = asked_ns;
        self.ahead_ns = self.ahead_ns.clamp(BOUNDS_NS.0, (between as f64).clamp(BOUNDS_NS.1, BOUNDS_NS.2));
    }
}

#[cfg(test)]
mod tests;
