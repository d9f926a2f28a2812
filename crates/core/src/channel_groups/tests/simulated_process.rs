//! A process of the simulation: when it has work, and when that executes or waits.

use super::simulation::MS;
use crate::ClientId;
use crate::channel_groups::GroupId;
use crate::ledger::Class;

/// When a process has work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Always,
    Never,
    /// Busy for the first part of each period, from `from` on.
    Periodic {
        from: u64,
        period: u64,
        busy: u64,
    },
    /// Reports work in each second millisecond, and otherwise that it has never had any.
    Forged,
    /// A kernel of this GPU time and a command that waits for this time, in turn. A stream of a disabled group does not go on.
    Turns {
        kernel: u64,
        wait: u64,
    },
}

/// What a process of [`Work::Turns`] does, and since when.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Runs { since: u64, left: u64 },
    Waits { since: u64, until: u64 },
}

impl Work {
    fn at(self, now: u64) -> (bool, u64, u64) {
        match self {
            Self::Always | Self::Turns { .. } => (true, 0, u64::MAX),
            Self::Never => (false, 0, u64::MAX),
            Self::Forged => {
                (now / MS % 2 == 1, if now / MS % 2 == 1 { now / MS * MS } else { 0 }, (now / MS + 1) * MS)
            }
            Self::Periodic { from, .. } if now < from => (false, 0, from),
            Self::Periodic { from, period, busy } => {
                let begun = now - (now - from) % period;
                if now < begun + busy {
                    (true, begun, begun + busy)
                } else {
                    (false, begun + busy, begun + period)
                }
            }
        }
    }
}

pub(super) struct Process {
    pub(super) client: ClientId,
    pub(super) class: Class,
    pub(super) work: Work,
    pub(super) groups: Vec<GroupId>,
    turn: Turn,
    /// Kernels of [`Work::Turns`] that have ended.
    pub(super) turns: u64,
}

impl Process {
    /// A process of this client and class that begins its work at `now`.
    pub(super) fn new(owner: (ClientId, Class), groups: Vec<GroupId>, work: Work, now: u64) -> Self {
        let left = if let Work::Turns { kernel, .. } = work { kernel } else { 0 };
        let (client, class) = owner;
        Self { client, class, work, groups, turn: Turn::Runs { since: now, left }, turns: 0 }
    }

    /// Whether it has work, and since when it has had it or none.
    pub(super) fn activity(&self, now: u64) -> (bool, u64) {
        let (busy, since_ns, _) = self.work.at(now);
        match (self.work, self.turn) {
            // The activity changes with each kernel.
            (Work::Turns { .. }, Turn::Runs { since, .. }) => (busy, since),
            _ => (busy, since_ns),
        }
    }

    /// Whether it has a kernel at `now`.
    pub(super) fn has_kernel(&self, now: u64) -> bool {
        let waits = matches!((self.work, self.turn), (Work::Turns { .. }, Turn::Waits { .. }));
        self.work.at(now).0 && !waits
    }

    /// Since when all of its work waits.
    pub(super) fn waits_since(&self) -> Option<u64> {
        match (self.work, self.turn) {
            (Work::Turns { .. }, Turn::Waits { since, .. }) => Some(since),
            _ => None,
        }
    }

    /// Its kernel has run for `ns` up to `now`.
    pub(super) fn ran(&mut self, ns: u64, now: u64) {
        if let (Work::Turns { wait, .. }, Turn::Runs { left, .. }) = (self.work, &mut self.turn) {
            *left = left.saturating_sub(ns);
            if *left == 0 {
                self.turn = Turn::Waits { since: now, until: now + wait };
                self.turns += 1;
            }
        }
    }

    /// Goes on with the next kernel if the wait has ended.
    pub(super) fn end_wait(&mut self, is_enabled: bool, now: u64) {
        if let (Work::Turns { kernel, .. }, Turn::Waits { until, .. }) = (self.work, self.turn)
            && is_enabled
            && now >= until
        {
            self.turn = Turn::Runs { since: now, left: kernel };
        }
    }

    /// When its work changes next, if it has all or `1 / served` of the GPU.
    pub(super) fn next_change(&self, now: u64, served: u64) -> u64 {
        match (self.work, self.turn) {
            (Work::Turns { .. }, Turn::Runs { left, .. }) => now + (left * served).max(1),
            (Work::Turns { .. }, Turn::Waits { until, .. }) if until > now => until,
            (Work::Turns { .. }, Turn::Waits { .. }) => u64::MAX,
            (work, _) => work.at(now).2,
        }
    }
}
