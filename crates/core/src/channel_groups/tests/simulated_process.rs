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
    /// Processes of a client that have a kernel of this GPU time in turn, and wait for each other.
    InTurn {
        kernel: u64,
        wait: TurnWait,
    },
    /// Kernels of this GPU time in the groups of the process in turn.
    Contexts {
        kernel: u64,
    },
}

/// How a process waits until its kernel is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnWait {
    /// Its thread waits, as in a read from a pipe: it has no work.
    Pipe,
    /// Its stream waits for a value in memory, and it reports that.
    Memory,
    /// Its kernel polls a value in memory.
    Kernel,
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
            Self::Always | Self::Turns { .. } | Self::InTurn { .. } | Self::Contexts { .. } => {
                (true, 0, u64::MAX)
            }
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
        let (client, class) = owner;
        let mut process =
            Self { client, class, work, groups, turn: Turn::Runs { since: now, left: 0 }, turns: 0 };
        process.begin_kernel(now);
        process
    }

    fn begin_kernel(&mut self, now: u64) {
        let left = match self.work {
            Work::Turns { kernel, .. } | Work::InTurn { kernel, .. } | Work::Contexts { kernel } => kernel,
            _ => 0,
        };
        self.turn = Turn::Runs { since: now, left };
    }

    /// The kernel of another process of its client is next.
    pub(super) fn wait_for_turn(&mut self, now: u64) {
        self.turn = Turn::Waits { since: now, until: u64::MAX };
    }

    /// Its kernel is next.
    pub(super) fn begin_turn(&mut self, now: u64) {
        if let Turn::Waits { until, .. } = &mut self.turn {
            *until = now;
        }
    }

    /// The group in which its kernel is; `None`: in each.
    pub(super) fn group_in_turn(&self) -> Option<GroupId> {
        let index = usize::try_from(self.turns).unwrap() % self.groups.len().max(1);
        self.groups.get(index).copied().filter(|_| matches!(self.work, Work::Contexts { .. }))
    }

    /// Whether a kernel at `now` makes progress where its group is enabled.
    pub(super) fn makes_progress(&self, now: u64) -> bool {
        self.has_kernel(now)
            && (matches!(self.turn, Turn::Runs { .. }) || !matches!(self.work, Work::InTurn { .. }))
    }

    /// Whether it has work, and since when it has had it or none.
    pub(super) fn activity(&self, now: u64) -> (bool, u64) {
        let (busy, since_ns, _) = self.work.at(now);
        match (self.work, self.turn) {
            // The activity changes with each kernel.
            (Work::Turns { .. } | Work::InTurn { .. }, Turn::Runs { since, .. }) => (busy, since),
            (Work::InTurn { wait, .. }, Turn::Waits { since, .. }) => (wait != TurnWait::Pipe, since),
            _ => (busy, since_ns),
        }
    }

    /// Whether it has a kernel at `now`.
    pub(super) fn has_kernel(&self, now: u64) -> bool {
        let waits = match self.work {
            Work::Turns { .. } => true,
            Work::InTurn { wait, .. } => wait != TurnWait::Kernel,
            _ => false,
        };
        self.work.at(now).0 && !(waits && matches!(self.turn, Turn::Waits { .. }))
    }

    /// Since when all of its work waits.
    pub(super) fn waits_since(&self) -> Option<u64> {
        match (self.work, self.turn) {
            (Work::Turns { .. } | Work::InTurn { wait: TurnWait::Memory, .. }, Turn::Waits { since, .. }) => {
                Some(since)
            }
            _ => None,
        }
    }

    /// Its kernel has run for `ns` up to `now`. Returns whether it has ended, and the kernel of another process is next.
    pub(super) fn ran(&mut self, ns: u64, now: u64) -> bool {
        let Turn::Runs { left, .. } = &mut self.turn else { return false };
        *left = left.saturating_sub(ns);
        if *left > 0 {
            return false;
        }
        match self.work {
            Work::Turns { wait, .. } => self.turn = Turn::Waits { since: now, until: now + wait },
            Work::InTurn { .. } => self.wait_for_turn(now),
            Work::Contexts { .. } => self.begin_kernel(now),
            _ => return false,
        }
        self.turns += 1;
        matches!(self.work, Work::InTurn { .. })
    }

    /// Goes on with the next kernel if the wait has ended.
    pub(super) fn end_wait(&mut self, is_enabled: bool, now: u64) {
        let is_enabled = is_enabled || matches!(self.work, Work::InTurn { wait: TurnWait::Pipe, .. });
        if matches!(self.turn, Turn::Waits { until, .. } if now >= until) && is_enabled {
            self.begin_kernel(now);
        }
    }

    /// When its work changes next, if it has all or `1 / served` of the GPU.
    pub(super) fn next_change(&self, now: u64, served: u64) -> u64 {
        match (self.work, self.turn) {
            (Work::Turns { .. } | Work::InTurn { .. } | Work::Contexts { .. }, Turn::Runs { left, .. }) => {
                now + (left * served).max(1)
            }
            (_, Turn::Waits { until, .. }) if until > now => until,
            (_, Turn::Waits { .. }) => u64::MAX,
            (work, _) => work.at(now).2,
        }
    }
}
