//! Decides which time slices best-effort clients should have beside this latency-critical process.
//!
//! With short slices each launch of this process takes the GPU at once, and each gap between two launches gives it back. A *host-bound*
//! process submits its work more slowly than the GPU executes it. Then each launch costs a context switch there and back: best-effort
//! work loses a third of its speed, and this process gains nothing against the driver's own slices.
//!
//! ```text
//!  Watching ──3/4 of the time is submission-bound──▶ Testing ──4 blocks──▶ Decided ──10 minutes, other contenders──▶ Testing
//!     ▲  short slices                                 short, default, short, default       │
//!     └──────────── less than half of the time is submission-bound: short slices ──────────┘
//! ```
//! Requests beside default slices that take longer than the client's latency goal decide for short slices.
//!
//! A process that waits for the GPU for most of its time never leaves *Watching*, so it never runs beside default slices.

mod recent;
mod slice_test;
#[cfg(test)]
mod tests;

use recent::RecentBursts;
use slice_test::{Found, SliceTest};

/// Least relative gain for which short slices are kept: smaller differences are noise.
const MIN_GAIN: f64 = 0.05;

/// So many requests beside default slices have to miss their goal before short slices are wanted for it.
const FEWEST_MISSED: u64 = 2;

/// How long a decision stays.
const VALID_NS: u64 = 600_000_000_000;

/// Least time from the begin of a test, and from a decision, until the next test. A test changes the slices of every best-effort group four times.
const PAUSE_NS: u64 = 10_000_000_000;

/// After so many successive bursts beside another number of contenders, the load has changed. Contenders that pause for a moment do not count.
const CHANGED_BURSTS: u32 = 64;

/// Time slices of the best-effort clients on this GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slices {
    /// 1 µs: a launch of a latency-critical process takes the GPU at once.
    #[default]
    Short,
    /// The driver's default, 2048 µs.
    Default,
}

/// A burst whose end a wait of the host has shown.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    /// Its first launch.
    pub begun_ns: u64,
    /// When the wait began.
    pub waited_ns: u64,
    /// When the wait ended.
    pub ended_ns: u64,
    /// Its launches.
    pub launches: u64,
}

/// What the process reports to the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceReport {
    /// The slices that it wants.
    pub wanted: Slices,
    /// Median duration of a burst in the last test beside short slices and beside default slices, in nanoseconds; 0 before the first test.
    pub medians_ns: (u64, u64),
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Watching,
    Testing(SliceTest),
    Decided(Decision),
}

#[derive(Debug)]
struct Decision {
    slices: Slices,
    decided_ns: u64,
    contenders: u64,
    /// Successive bursts beside another number of contenders.
    changed_bursts: u32,
}

/// The choice of one device of this process. Pure: the caller passes the times.
#[derive(Debug, Default)]
pub struct HostBoundTest {
    recent: RecentBursts,
    phase: Phase,
    medians_ns: (u64, u64),
    /// Before this time no other test begins.
    next_test_ns: u64,
    /// Requests with a goal that ended beside default slices since the last decision, and how many of them missed it.
    requests: u64,
    missed: u64,
}

impl HostBoundTest {
    /// Records a burst that ran beside `contenders` (not 0) while these slices were in force, as the manager reports them.
    pub fn burst_ended(&mut self, burst: Burst, contenders: u64, in_force: Slices) {
        self.recent.record(burst);
        if !self.recent.is_host_bound() {
            self.phase = Phase::Watching;
            return;
        }
        let now = burst.ended_ns;
        match &mut self.phase {
            Phase::Watching if now >= self.next_test_ns => self.begin_test(now),
            Phase::Watching => {}
            Phase::Testing(test) => {
                if let Some(found) = test.record(burst, in_force) {
                    self.decide(found, now, contenders);
                }
            }
            Phase::Decided(decision) => {
                if decision.is_over(now, contenders) {
                    self.begin_test(now);
                }
            }
        }
    }

    fn begin_test(&mut self, now: u64) {
        self.next_test_ns = now + PAUSE_NS;
        self.phase = Phase::Testing(SliceTest::new());
    }

    /// A request has ended, and has missed the client's latency goal or not. Short slices are wanted until the next test once default ones make more
    /// than one request in a hundred miss it, and at least two: a pause of the host alone is no reason.
    pub fn request_ended(&mut self, missed: bool, now: u64, contenders: u64, in_force: Slices) {
        if self.report().wanted != Slices::Default || in_force != Slices::Default {
            return;
        }
        self.requests += 1;
        self.missed += u64::from(missed);
        if self.missed >= FEWEST_MISSED && self.missed * 100 > self.requests {
            self.decided(Slices::Short, now, contenders);
        }
    }

    /// Keeps short slices if this process gains at least as large a part of its time as best-effort clients lose of theirs. These lose the
    /// GPU while the host of this process submits.
    fn decide(&mut self, found: Found, now: u64, contenders: u64) {
        let (short, default) = found.medians_ns;
        let gains = short as f64 <= default as f64 * (1.0 - found.submitting.clamp(MIN_GAIN, 1.0));
        let slices = if gains { Slices::Short } else { Slices::Default };
        self.medians_ns = found.medians_ns;
        self.decided(slices, now, contenders);
    }

    fn decided(&mut self, slices: Slices, now: u64, contenders: u64) {
        (self.requests, self.missed) = (0, 0);
        self.next_test_ns = now + PAUSE_NS;
        self.phase = Phase::Decided(Decision { slices, decided_ns: now, contenders, changed_bursts: 0 });
    }

    /// What to report to the manager.
    pub fn report(&self) -> SliceReport {
        let wanted = match &self.phase {
            Phase::Watching => Slices::Short,
            Phase::Testing(test) => test.slices(),
            Phase::Decided(decision) => decision.slices,
        };
        SliceReport { wanted, medians_ns: self.medians_ns }
    }
}

impl Decision {
    /// Counts a burst. Whether another test is due.
    fn is_over(&mut self, now: u64, contenders: u64) -> bool {
        self.changed_bursts = if contenders == self.contenders { 0 } else { self.changed_bursts + 1 };
        let age = now.saturating_sub(self.decided_ns);
        age >= VALID_NS || age >= PAUSE_NS && self.changed_bursts >= CHANGED_BURSTS
    }
}
