//! A hold kernel while it runs: what it has seen of the word that it polls.

use super::command::HoldParams;
use crate::params;

/// The kernel stays up to `still_ns` while this bit of the activity is set.
const KEEPS: u32 = 1 << 0;
/// The program has work: this time is not counted as idle.
const WORKING: u32 = 1 << 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) address: u64,
    params: HoldParams,
    /// Tags of its records; see [`super::Work::Hold`].
    pub(super) times: [u64; 3],
    began: u64,
    /// The activity that it saw last, and since when.
    activity: u32,
    since: u64,
    limit_ns: u64,
    idle_ns: u64,
    has_seen_change: bool,
    is_released: bool,
}

/// What a hold kernel does after it has read the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It stays as before.
    Unchanged,
    /// It ends at this time, unless there is another change.
    Until {
        /// The time.
        deadline: u64,
        /// This was the first change.
        is_first: bool,
    },
    /// It ends at once.
    Released {
        /// This was the first change.
        is_first: bool,
    },
}

impl Hold {
    pub(super) fn new(address: u64, params: HoldParams, times: [u64; 3]) -> Self {
        Self {
            address,
            params,
            times,
            began: 0,
            activity: params.activity,
            since: 0,
            limit_ns: params.timeout_ns,
            idle_ns: 0,
            has_seen_change: false,
            is_released: false,
        }
    }

    /// Begins at `now`. Returns when it ends without a change.
    pub(super) fn begin(&mut self, now: u64) -> u64 {
        (self.began, self.since) = (now, now);
        self.deadline()
    }

    fn deadline(&self) -> u64 {
        let still = self.since.saturating_add(self.limit_ns);
        still.min(self.began.saturating_add(self.params.longest_ns)).max(self.began + params::MIN_KERNEL_NS)
    }

    /// Reads the word.
    pub(super) fn read(&mut self, word: u64, now: u64) -> Step {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
        let (ticket, activity) = (word as u32, (word >> 32) as u32);
        let is_changed = activity != self.activity;
        let is_first = is_changed && !self.has_seen_change;
        if is_changed {
            self.idle_ns = self.idle_ns(now);
            (self.activity, self.since, self.has_seen_change) = (activity, now, true);
            self.limit_ns = if activity & KEEPS != 0 { self.params.still_ns } else { self.params.linger_ns };
        }
        self.is_released |= ticket.wrapping_sub(self.params.ticket).cast_signed() >= 0;
        match is_changed {
            _ if self.is_released => Step::Released { is_first },
            true => Step::Until { deadline: self.deadline().max(now + 1), is_first },
            false => Step::Unchanged,
        }
    }

    /// Time until `now` without work of the program.
    fn idle_ns(&self, now: u64) -> u64 {
        let lasting = if self.activity & WORKING == 0 { now - self.since } else { 0 };
        self.idle_ns + lasting
    }

    /// The third of its times, at its end.
    pub(super) fn idle_until(&self, now: u64) -> u64 {
        self.began + self.idle_ns(now)
    }
}

#[cfg(test)]
mod tests;
