//! Stream gates: when best-effort processes are to hold back what they have submitted.
//!
//! A stream gate stands in front of work in the process itself: the running kernel finishes, and what has not begun waits. [`Gates`]
//! decides whether gates are to be put there at all, and whether they are closed. They are closed while a latency-critical process is
//! busy or has announced work, and for [`GatePolicy::idle_ns`] after that, but never for so long that the others get less than
//! [`GatePolicy::least_open`] of the time. A latency-critical process that ends is no longer among those that [`Gates::update`] is
//! told of, so its death opens the gates.

#[cfg(test)]
mod tests;

use crate::channel_groups::Activity;
use crate::share::{Share, WHOLE_PPM};

/// Settings of the stream gates; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatePolicy {
    /// The gates are opened once all latency-critical processes have been idle for this time: the steps of one request may have pauses
    /// between them. Default 500 µs.
    pub idle_ns: u64,
    /// A process that has been busy for less than this may soon be idle again. Default 2 ms.
    pub short_ns: u64,
    /// How often activity is read until then. Default 100 µs.
    pub short_poll_ns: u64,
    /// How often activity is read after that, while the gates are closed. Default 250 µs.
    pub poll_ns: u64,
    /// How often activity is read while the gates are open: a wake-up may be lost. Default 50 ms.
    pub idle_poll_ns: u64,
    /// The part of the time for which the gates are open, whatever the latency-critical processes do; below 1. Default 5 %.
    pub least_open: Share,
    /// The gates are closed for at most this time at once. Then they are open for [`Self::least_open`] of it. Default 1 s.
    pub period_ns: u64,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            idle_ns: 500_000,
            short_ns: 2_000_000,
            short_poll_ns: 100_000,
            poll_ns: 250_000,
            idle_poll_ns: 50_000_000,
            least_open: Share::from_ppm(50_000).unwrap_or(Share::ZERO),
            period_ns: 1_000_000_000,
        }
    }
}

/// The state of the gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GateState {
    /// No latency-critical process is attached: gates are not needed.
    #[default]
    Unwanted,
    /// Open: all latency-critical processes are idle.
    Open,
    /// Closed: a latency-critical process is busy, or was a moment ago.
    Closed,
    /// Open though one is busy: they were closed for long enough.
    Forced,
}

impl GateState {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 4] = ["unwanted", "open", "closed", "forced"];

    /// Position in [`Self::LABELS`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether gates are to be put in front of work.
    pub const fn is_wanted(self) -> bool {
        !matches!(self, Self::Unwanted)
    }

    /// Whether work that has not begun is held back.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// The gates of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gates {
    policy: GatePolicy,
    state: GateState,
    /// When activity is to be read again while the gates are closed.
    poll_at: u64,
    /// The time of the last update.
    updated_at: u64,
    /// Time for which the gates still have to be open because they were closed, nanoseconds × parts per million of closed time.
    owed: u128,
}

impl Gates {
    /// Open, without a latency-critical process.
    pub fn new(policy: GatePolicy) -> Self {
        Self { policy, state: GateState::default(), poll_at: 0, updated_at: 0, owed: 0 }
    }

    /// Replaces the settings. What is owed for closed time stays.
    pub fn set_policy(&mut self, policy: GatePolicy) {
        self.policy = policy;
    }

    /// The state of the gates at `now`, given the activity of the latency-critical processes and until when announced work counts. A
    /// time before the last update counts as that.
    pub fn update(
        &mut self,
        now: u64,
        announced_until: Option<u64>,
        critical: impl Iterator<Item = Activity> + Clone,
    ) -> GateState {
        let now = self.count(now);
        let critical = critical.map(|activity| activity.known_at(now));
        let present = critical.clone().next().is_some();
        let busy_since = critical.clone().filter(|activity| activity.busy).map(|busy| busy.since_ns).min();
        let idle_since = critical.map(|activity| activity.since_ns).max().filter(|_| busy_since.is_none());
        let idle_until = |since: u64| since.saturating_add(self.policy.idle_ns);
        let opens_at = idle_since.map(|since| idle_until(since).max(announced_until.unwrap_or(0)));
        let busy = opens_at.is_none_or(|opens_at| now < opens_at);
        self.poll_at = self.next_poll(now, opens_at, busy_since, announced_until.is_some());
        self.state = match (present, busy, self.state) {
            (false, ..) => GateState::Unwanted,
            (true, false, _) => GateState::Open,
            (true, true, GateState::Forced) if self.owed > 0 => GateState::Forced,
            (true, true, GateState::Closed) if self.is_due() => GateState::Forced,
            (true, true, _) => GateState::Closed,
        };
        self.state
    }

    /// When closed gates need the next update: at the latest when they have to be opened whatever the processes report.
    fn next_poll(&self, now: u64, opens_at: Option<u64>, busy_since: Option<u64>, announced: bool) -> u64 {
        let ends_soon = busy_since.is_some_and(|since| now < since.saturating_add(self.policy.short_ns));
        let poll_ns = if ends_soon { self.policy.short_poll_ns } else { self.policy.poll_ns };
        let next = now.saturating_add(poll_ns);
        let poll_at = opens_at.map_or(next, |opens_at| if announced { opens_at.min(next) } else { opens_at });
        self.due_at().map_or(poll_at, |due| poll_at.min(due))
    }

    /// The state after the last update.
    pub const fn state(&self) -> GateState {
        self.state
    }

    /// When to update again, if nothing else happens.
    pub fn wake_at(&self) -> Option<u64> {
        let soon = |ns: u64| self.updated_at.saturating_add(ns.max(1));
        match self.state {
            GateState::Unwanted => None,
            GateState::Open => Some(soon(self.policy.idle_poll_ns)),
            GateState::Closed => Some(self.poll_at.max(soon(0))),
            GateState::Forced => Some(soon(time_for(self.owed, self.open_rate()))),
        }
    }

    /// Adds the time since the last update to what is owed, or subtracts it.
    fn count(&mut self, now: u64) -> u64 {
        let elapsed = u128::from(now.saturating_sub(self.updated_at));
        self.updated_at = self.updated_at.max(now);
        self.owed = match self.state {
            GateState::Closed => self.owed.saturating_add(elapsed * u128::from(self.policy.least_open.ppm())),
            _ => self.owed.saturating_sub(elapsed * self.open_rate()),
        };
        self.updated_at
    }

    /// Whether they were closed for as long as they may be.
    fn is_due(&self) -> bool {
        self.due_at().is_some_and(|due| due <= self.updated_at)
    }

    /// When they will have been closed for as long as they may be, if they are from here on; `None`: never.
    fn due_at(&self) -> Option<u64> {
        let share = self.policy.least_open;
        let most = u128::from(share.of(self.policy.period_ns)) * self.open_rate();
        let closed_rate = u128::from(share.ppm());
        let wait = time_for(most.saturating_sub(self.owed), closed_rate);
        (share > Share::ZERO).then(|| self.updated_at.saturating_add(wait))
    }

    /// How much a nanosecond of being open takes off what is owed.
    fn open_rate(&self) -> u128 {
        u128::from(WHOLE_PPM - self.policy.least_open.ppm()).max(1)
    }
}

/// The time that an amount lasts at a rate per nanosecond, nanoseconds.
fn time_for(amount: u128, rate: u128) -> u64 {
    u64::try_from(amount.div_ceil(rate.max(1))).unwrap_or(u64::MAX)
}

/// The longest time for which an announcement closes the gates, nanoseconds.
const MAX_ANNOUNCED_NS: u64 = 2_000_000;
/// How much later than announced the work may come, nanoseconds: the time that a host takes to prepare it varies.
const LATE_NS: u64 = 500_000;

/// Announced work that was read: a latency-critical process announces that a request of its own begins soon, so that the gates are closed
/// when it does. It counts as work until the work comes or is late. [`GatePolicy::least_open`] bounds how long announcements without
/// work keep the gates closed, as it bounds work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Announced {
    /// When the manager read it.
    read_at: u64,
    /// Until when it counts as work.
    pub until: u64,
}

impl Announced {
    /// Work in `lead_ns`, announced at `now`. `None` if that is further ahead than 2 ms.
    pub fn at(now: u64, lead_ns: u64) -> Option<Self> {
        let lasts_ns = lead_ns.saturating_add(LATE_NS).min(MAX_ANNOUNCED_NS);
        (lead_ns <= MAX_ANNOUNCED_NS).then(|| Self { read_at: now, until: now.saturating_add(lasts_ns) })
    }

    /// Work at the time `begins_at`, announced on a page that is read at `now`. `None` if the work is late already.
    pub fn on_page(now: u64, begins_at: u64) -> Option<Self> {
        let is_late = begins_at.saturating_add(LATE_NS) <= now;
        (!is_late).then(|| Self::at(now, begins_at.saturating_sub(now))).flatten()
    }

    /// Whether it counts no longer: its time is up, or work has come.
    pub fn is_over(&self, now: u64, activity: Activity) -> bool {
        activity.busy || activity.since_ns > self.read_at || now >= self.until
    }
}
