//! How early a thread has to ask to be woken, so that it is awake when something is due.
//!
//! A thread that sleeps on an idle processor wakes late, by tens or hundreds of microseconds and never by the same. What is due is worth
//! more than that: so the thread asks to be woken earlier, by as much as it is usually late, and looks at the clock from there on.

/// Before anything was measured, in nanoseconds.
const ASSUMED_NS: f64 = 100_000.0;

/// What is looked at the clock for beyond the usual lateness, in nanoseconds.
const SPARE_NS: f64 = 10_000.0;

/// Where it stays whatever is measured: that long a processor may be kept from others, or a sixteenth of the time between two
/// wakings if that is more, up to the last.
const BOUNDS_NS: (f64, f64, f64) = (SPARE_NS, 300_000.0, 800_000.0);
const PART_OF_TIME: u64 = 16;

/// How much a thread that woke sooner than expected moves it; one that woke later moves it all the way.
const SOONER: f64 = 1.0 / 64.0;

/// How late a thread usually wakes.
#[derive(Debug, Clone, Copy)]
pub struct WakeupLatency {
    ahead_ns: f64,
    /// When it was last to be woken.
    last_ns: u64,
}

impl WakeupLatency {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { ahead_ns: ASSUMED_NS, last_ns: 0 }
    }

    /// When to be woken for what is due at `due_ns`.
    pub fn wake_at(&self, due_ns: u64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
        due_ns.saturating_sub(self.ahead_ns as u64)
    }

    /// It was to be woken at `asked_ns` and looked at the clock at `now_ns`.
    pub fn learn(&mut self, asked_ns: u64, now_ns: u64) {
        let ahead_ns = now_ns.saturating_sub(asked_ns) as f64 + SPARE_NS;
        let sooner = ahead_ns < self.ahead_ns;
        self.ahead_ns += if sooner { SOONER } else { 1.0 } * (ahead_ns - self.ahead_ns);
        let between = asked_ns.saturating_sub(self.last_ns) / PART_OF_TIME;
        self.last_ns = asked_ns;
        self.ahead_ns = self.ahead_ns.clamp(BOUNDS_NS.0, (between as f64).clamp(BOUNDS_NS.1, BOUNDS_NS.2));
    }
}

impl Default for WakeupLatency {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "wakeup_latency_tests.rs"]
mod tests;
