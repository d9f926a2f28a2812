//! When a thread polls for an event that is due at a known time, instead of sleeping until another thread wakes it.
//!
//! A thread that has slept for 45 ms wakes 70 to 500 µs late on the H200's host, whether by a timer or by another thread. After 2 ms it wakes
//! 20 to 230 µs late, after 200 µs only 5 to 20 µs. The token passes through three threads: the holder's tracker, the manager's event loop
//! and the next client's launch. All of them know when the grant ends. So each of them shortens its sleep in steps, and then polls
//! around the time. The budget bounds the polling to a part of a core, also if grants are short.

use sluice_rate_limiter::{Rate, RateLimiter};

/// How long a thread polls before the due time, in nanoseconds: a program's thread wakes 50 µs late by its timer slack, and some more. It
/// polls 1.6 times as long after the due time: the event comes when the holder's work has ended.
pub const AROUND_NS: u64 = 125_000;

/// The same on a machine with so many processors for this process.
pub const fn around_ns(cpus: usize) -> u64 {
    if cpus < LEAST_CPUS { 0 } else { AROUND_NS }
}

/// The longest polling for one due time.
const fn whole_ns(around_ns: u64) -> u64 {
    13 * around_ns / 5
}

/// When the sleeps before the polling end, in nanoseconds before it begins. Each leaves more time than its timer is late.
const SLEEPS_END_NS: [u64; 3] = [1_000_000, 200_000, 0];

/// A thread polls for at most one part in this of the time: 0.5 % of a core, which are 250 µs for each grant of 50 ms.
const PARTS: u64 = 200;

/// On a machine with fewer processors, or with a quota of fewer, a thread that polls takes the processor of the thread for which it waits.
const LEAST_CPUS: usize = 4;

/// How long a thread that does not know the time yet sleeps before it looks again.
const FIRST_LOOK_NS: u64 = 2_000_000;

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Sleep until this time, unless the event comes earlier.
    SleepUntil(u64),
    /// Look for the event again at once.
    Poll,
    /// Sleep until the event comes.
    Sleep,
}

/// The polling of one thread.
#[derive(Debug)]
pub struct DeadlinePolling {
    around_ns: u64,
    budget: RateLimiter,
    /// When the polling in progress began, and the due time that it is for.
    polling: Option<(u64, u64)>,
}

impl DeadlinePolling {
    /// Polling for so long before each due time, and 1.6 times as long after it; 0: none.
    pub const fn new(around_ns: u64) -> Self {
        let rate = Rate { burst: whole_ns(around_ns), tokens: 1, period_ns: PARTS };
        Self { around_ns, budget: RateLimiter::full(rate), polling: None }
    }

    /// When polling for an event that is due at `due` ends.
    pub const fn end(&self, due: u64) -> u64 {
        due.saturating_add(whole_ns(self.around_ns) - self.around_ns)
    }

    /// The next step of a thread that waits for an event that is due at `due`. The event has not come yet.
    pub fn next(&mut self, due: u64, now: u64) -> Step {
        let begin = due.saturating_sub(self.around_ns);
        if self.around_ns == 0 || now >= self.end(due) {
            self.stop(now);
            return Step::Sleep;
        }
        if now < begin {
            self.stop(now);
            let mut ends = SLEEPS_END_NS.iter().map(|before| begin.saturating_sub(*before));
            return Step::SleepUntil(ends.find(|end| now < *end).unwrap_or(begin));
        }
        if self.polling.is_none_or(|(_, of)| of != due) {
            self.stop(now);
            // A polling that ends before the event is of no use; most events come within 75 µs after their time.
            if self.budget.available(now) < 8 * self.around_ns / 5 {
                return Step::Sleep;
            }
            self.polling = Some((now, due));
        }
        Step::Poll
    }

    /// The next step of a thread that has waited since `since` and does not know yet when the event is due: looks that become rarer.
    pub fn look(&mut self, since: u64, now: u64) -> Step {
        self.stop(now);
        if self.around_ns == 0 {
            return Step::Sleep;
        }
        let waited = now.saturating_sub(since) / FIRST_LOOK_NS + 1;
        Step::SleepUntil(since.saturating_add(FIRST_LOOK_NS.saturating_mul(waited.next_power_of_two())))
    }

    /// The event has come, or the thread does something else: the polling in progress is counted.
    pub fn stop(&mut self, now: u64) {
        if let Some((since, _)) = self.polling.take() {
            // Beyond that the thread did not run.
            let whole_ns = whole_ns(self.around_ns);
            self.budget.take(now.saturating_sub(since).min(whole_ns), whole_ns, now);
        }
    }
}

#[cfg(test)]
mod tests;
