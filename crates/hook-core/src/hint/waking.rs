//! How early a thread has to ask to be woken, so that it is awake when something is due.
//!
//! A thread that sleeps on an idle processor wakes late, by tens or hundreds of microseconds and never by the same. What is due is worth
//! more than that: so the thread asks to be woken earlier, by as much as it is usually late, and looks at the clock from there on.

/// Before anything was measured, in nanoseconds.
const ASSUMED_NS: f64 = 100_000.0;

/// What is looked at the clock for beyond the usual lateness, in nanoseconds.
const SPARE_NS: f64 = 10_000.0;

/// Where it stays whatever is measured: that long a processor may be kept from others.
const BOUNDS_NS: (f64, f64) = (SPARE_NS, 300_000.0);

/// How much a thread that woke sooner than expected moves it, and one that woke later.
const PARTS: (f64, f64) = (1.0 / 32.0, 1.0 / 2.0);

/// How late a thread usually wakes.
#[derive(Debug, Clone, Copy)]
pub struct Waking {
    ahead_ns: f64,
}

impl Waking {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { ahead_ns: ASSUMED_NS }
    }

    /// When to be woken for what is due at `due_ns`.
    pub fn before(&self, due_ns: u64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
        due_ns.saturating_sub(self.ahead_ns as u64)
    }

    /// It was to be woken at `asked_ns` and looked at the clock at `now_ns`.
    pub fn woke(&mut self, asked_ns: u64, now_ns: u64) {
        let error = now_ns.saturating_sub(asked_ns) as f64 + SPARE_NS - self.ahead_ns;
        let part = if error < 0.0 { PARTS.0 } else { PARTS.1 };
        self.ahead_ns = (self.ahead_ns + part * error).clamp(BOUNDS_NS.0, BOUNDS_NS.1);
    }
}

impl Default for Waking {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: u64 = 1_000_000_000;

    /// Wakes so much late each time.
    fn after(late_ns: impl IntoIterator<Item = u64>) -> Waking {
        let mut waking = Waking::new();
        late_ns.into_iter().for_each(|late| waking.woke(DUE, DUE + late));
        waking
    }

    #[test]
    fn who_wakes_late_asks_to_be_woken_that_much_earlier() {
        let waking = after([170_000; 20]);
        let woken = waking.before(DUE) + 170_000;
        assert!((DUE - 15_000..=DUE).contains(&woken), "{}", DUE - woken);
    }

    #[test]
    fn one_that_wakes_in_time_does_not_look_at_the_clock_for_long() {
        let waking = after([2_000; 400]);
        assert!(DUE - waking.before(DUE) < 15_000, "{waking:?}");
    }

    #[test]
    fn one_late_waking_counts_more_than_one_in_time() {
        let mut waking = after([2_000; 400]);
        waking.woke(DUE, DUE + 200_000);
        waking.woke(DUE, DUE + 2_000);
        assert!(DUE - waking.before(DUE) > 90_000, "{waking:?}");
    }

    #[test]
    fn a_second_of_sleep_is_no_reason_to_keep_a_processor_for_one() {
        assert_eq!(DUE - after([1_000_000_000; 20]).before(DUE), 300_000);
    }
}
