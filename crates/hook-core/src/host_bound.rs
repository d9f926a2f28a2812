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
//! A process that waits for the GPU for most of its time never leaves *Watching*, so it never runs beside default slices.

mod recent;
#[cfg(test)]
mod tests;

use recent::RecentBursts;

/// Bursts that are timed in each block of a test.
const BLOCK: usize = 16;

/// Blocks of a test. Short and default slices alternate, so that a drift of the load does not count for either.
const BLOCKS: usize = 4;

/// How long bursts are not timed after the manager has changed the slices: a control takes 0.3 to 0.9 ms for each channel group.
const SETTLE_NS: u64 = 100_000_000;

/// Relative gain for which short slices are kept. They cost best-effort clients 35 to 40 % of their speed.
const MIN_GAIN: f64 = 0.05;

/// How long a decision stays.
const VALID_NS: u64 = 600_000_000_000;

/// Least time between a decision and the next test. A test changes the slices of every best-effort group four times.
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
    Testing(Test),
    Decided(Decision),
}

#[derive(Debug)]
struct Test {
    block: usize,
    /// Since when the slices of the block are known to be in force.
    in_force_since: Option<u64>,
    /// Durations beside short and beside default slices.
    times: [Vec<u64>; 2],
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
            Phase::Watching if now >= self.next_test_ns => self.phase = Phase::Testing(Test::new()),
            Phase::Watching => {}
            Phase::Testing(test) => {
                if let Some(medians) = test.record(burst, in_force) {
                    self.decide(medians, now, contenders);
                }
            }
            Phase::Decided(decision) => {
                if decision.is_over(now, contenders) {
                    self.phase = Phase::Testing(Test::new());
                }
            }
        }
    }

    fn decide(&mut self, (short, default): (u64, u64), now: u64, contenders: u64) {
        let gains = short as f64 <= default as f64 * (1.0 - MIN_GAIN);
        let slices = if gains { Slices::Short } else { Slices::Default };
        self.medians_ns = (short, default);
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

impl Test {
    fn new() -> Self {
        let times = || Vec::with_capacity(BLOCK * BLOCKS / 2);
        Self { block: 0, in_force_since: None, times: [times(), times()] }
    }

    fn slices(&self) -> Slices {
        if self.block.is_multiple_of(2) { Slices::Short } else { Slices::Default }
    }

    /// Records a burst. Returns the medians beside short and default slices after the last burst of the test.
    fn record(&mut self, burst: Burst, in_force: Slices) -> Option<(u64, u64)> {
        let slices = self.slices();
        if in_force != slices {
            self.in_force_since = None;
            return None;
        }
        let since = *self.in_force_since.get_or_insert(burst.ended_ns);
        if burst.begun_ns < since.saturating_add(SETTLE_NS) || !burst.has_many_launches() {
            return None;
        }
        let times = &mut self.times[slices as usize];
        times.push(burst.ended_ns.saturating_sub(burst.begun_ns));
        if times.len() < (self.block / 2 + 1) * BLOCK {
            return None;
        }
        (self.block, self.in_force_since) = (self.block + 1, None);
        let [short, default] = &mut self.times;
        (self.block == BLOCKS).then(|| (median(short), median(default)))
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

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
