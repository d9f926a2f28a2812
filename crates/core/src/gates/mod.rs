//! Gates: when best-effort processes that cannot be sliced are to hold what they have submitted.
//!
//! A gate stands in front of work in the process itself: what runs finishes, what has not begun waits. [`Gates`] says whether
//! gates are to be put there at all, and whether they are closed: while somebody latency-critical is busy, but never for so
//! long that the others get less than [`GatePolicy::least_open`] of the time. Whoever is latency-critical and dies is not
//! among those that [`Gates::look`] is told of any more, so nobody stays shut out for it.

mod foresight;
mod patience;
mod policy;
#[cfg(test)]
mod tests;
mod witness;

pub use foresight::{Foresight, LATE_NS};
use patience::Patience;
pub use policy::GatePolicy;
pub use witness::{MOST_STREAMS, Witness};

use crate::share::{Share, WHOLE_PPM};
use crate::steering::Activity;

/// How the gates are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gating {
    /// Nobody latency-critical is attached: there need not be any.
    #[default]
    Unwanted,
    /// Open: everybody latency-critical is idle.
    Open,
    /// Closed: somebody latency-critical is busy, or was a moment ago.
    Closed,
    /// Open though somebody is: they were closed for long enough.
    Forced,
}

impl Gating {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 4] = ["unwanted", "open", "closed", "forced"];

    /// Position in [`Self::LABELS`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Unwanted => 0,
            Self::Open => 1,
            Self::Closed => 2,
            Self::Forced => 3,
        }
    }

    /// Gates are to be put in front of work.
    #[must_use]
    pub const fn is_wanted(self) -> bool {
        !matches!(self, Self::Unwanted)
    }

    /// What has not begun is not to begin.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// The gates of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gates {
    policy: GatePolicy,
    patience: Patience,
    state: Gating,
    /// When closed gates are to be looked at.
    look_at: u64,
    /// Until when work that was announced counts as if it were there.
    awaited: Option<u64>,
    /// Up to when `owed` has been added up.
    seen: u64,
    /// Time that the gates still have to be open for what they were closed, nanoseconds × parts per million of closed time.
    owed: u128,
}

impl Gates {
    /// Open, and nobody latency-critical there.
    #[must_use]
    pub fn new(policy: GatePolicy) -> Self {
        let patience = Patience::new(policy.idle_ns);
        Self { policy, patience, state: Gating::default(), look_at: 0, awaited: None, seen: 0, owed: 0 }
    }

    /// Somebody latency-critical has announced work, and is believed until then; `None`: nobody. For the looks from here on.
    pub fn set_awaited(&mut self, until: Option<u64>) {
        self.awaited = until;
    }

    /// How the gates are to be at `now`, while those who are latency-critical do this. A time before the latest one counts as
    /// that one.
    pub fn look(&mut self, now: u64, critical: impl Iterator<Item = Activity> + Clone) -> Gating {
        let now = self.count(now);
        let critical = critical.map(|activity| activity.known_at(now));
        let present = critical.clone().next().is_some();
        let busy_since = critical.clone().filter(|activity| activity.busy).map(|busy| busy.since_ns).min();
        let idle_since = self.patience.observe(critical);
        let opens = idle_since.map(|since| since.saturating_add(self.patience.ns()));
        // Closed for what is announced they are closed all the same: it counts as time that is owed.
        let opens = opens.map(|opens| opens.max(self.awaited.unwrap_or(0)));
        let busy = opens.is_none_or(|opens| now < opens);
        let ends_soon = busy_since.is_some_and(|since| now < since.saturating_add(self.policy.short_ns));
        let look_ns = if ends_soon { self.policy.short_look_ns } else { self.policy.look_ns };
        let next = now.saturating_add(look_ns);
        let look_at =
            opens.map_or(next, |opens| if self.awaited.is_some() { opens.min(next) } else { opens });
        // Whatever those say who are given way to, the others have their time.
        self.look_at = self.due_at().map_or(look_at, |due| look_at.min(due));
        self.state = match (present, busy, self.state) {
            (false, ..) => Gating::Unwanted,
            (true, false, _) => Gating::Open,
            (true, true, Gating::Forced) if self.owed > 0 => Gating::Forced,
            (true, true, Gating::Closed) if self.is_due() => Gating::Forced,
            (true, true, _) => Gating::Closed,
        };
        self.state
    }

    /// How they are.
    #[must_use]
    pub const fn state(&self) -> Gating {
        self.state
    }

    /// When to look again, if nothing else happens.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        let soon = |ns: u64| self.seen.saturating_add(ns.max(1));
        match self.state {
            Gating::Unwanted => None,
            Gating::Open => Some(soon(self.policy.idle_look_ns)),
            Gating::Closed => Some(self.look_at.max(soon(0))),
            Gating::Forced => Some(soon(left(self.owed, self.open_rate()))),
        }
    }

    /// Adds up what the time since the last look comes to.
    fn count(&mut self, now: u64) -> u64 {
        let elapsed = u128::from(now.saturating_sub(self.seen));
        self.seen = self.seen.max(now);
        self.owed = match self.state {
            Gating::Closed => self.owed.saturating_add(elapsed * u128::from(self.policy.least_open.ppm())),
            _ => self.owed.saturating_sub(elapsed * self.open_rate()),
        };
        self.seen
    }

    /// They were closed for as long as they may be.
    fn is_due(&self) -> bool {
        self.due_at().is_some_and(|due| due <= self.seen)
    }

    /// When they will have been closed for as long as they may be, if they are from here on; `None`: never.
    fn due_at(&self) -> Option<u64> {
        let share = self.policy.least_open;
        let most = u128::from(share.of(self.policy.period_ns)) * self.open_rate();
        let closed_rate = u128::from(share.ppm());
        (share > Share::ZERO)
            .then(|| self.seen.saturating_add(left(most.saturating_sub(self.owed), closed_rate)))
    }

    /// What a nanosecond of being open takes off what is owed.
    fn open_rate(&self) -> u128 {
        u128::from(WHOLE_PPM - self.policy.least_open.ppm()).max(1)
    }
}

/// How long this much lasts at a rate per nanosecond, nanoseconds.
fn left(much: u128, rate: u128) -> u64 {
    u64::try_from(much.div_ceil(rate)).unwrap_or(u64::MAX)
}
