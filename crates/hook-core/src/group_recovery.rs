//! The recovery of a process's own channel groups after the loss of the manager that may have disabled them: which control comes when,
//! and how often a failed one is repeated.
//!
//! The slices of all groups are restored before any group is enabled. Two enabled groups with slices below a millisecond keep each other
//! from making progress, and the other one may be of another process.

use std::fmt::Debug;

/// Pauses before failed controls are repeated, in milliseconds: the process may be out of descriptors, or the driver busy. The last one is
/// repeated for as long as a control fails: a group that stays disabled is never enabled by another process.
const RETRY_MS: [u64; 5] = [1, 10, 100, 1000, 5000];

/// After so many rounds a group is enabled although its slice could not be restored. The driver may set no slices at all, and then the
/// manager has not changed them either.
const SLICE_ROUNDS: usize = 5;

/// The controls of one group.
pub trait OwnGroup: Debug {
    /// Restores the time slice that the group had before the manager changed it.
    fn restore_slice(&self) -> Result<(), RecoveryError>;
    /// Enables the group's channels.
    fn enable(&self) -> Result<(), RecoveryError>;
}

/// Why a control did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryError {
    /// The group exists no more.
    Gone,
    /// The driver refused, or there is no control descriptor.
    Failed,
}

#[derive(Debug)]
struct Entry<G> {
    group: G,
    has_slice: bool,
    is_enabled: bool,
}

/// The recovery of all groups of a process on one device.
#[derive(Debug)]
pub struct Recovery<G> {
    remaining: Vec<Entry<G>>,
    total: usize,
    rounds: usize,
}

impl<G: OwnGroup> Recovery<G> {
    /// A recovery of these groups that has not begun.
    pub fn new(groups: Vec<G>) -> Self {
        let total = groups.len();
        let entry = |group| Entry { group, has_slice: false, is_enabled: false };
        Self { remaining: groups.into_iter().map(entry).collect(), total, rounds: 0 }
    }

    /// Makes each control that has not succeeded yet once. Returns the pause before the next round in milliseconds; `None` when all groups
    /// are recovered or gone.
    pub fn round(&mut self) -> Option<u64> {
        self.rounds += 1;
        self.remaining.retain_mut(|entry| {
            let restored = if entry.has_slice { Ok(()) } else { entry.group.restore_slice() };
            entry.has_slice = restored.is_ok();
            restored != Err(RecoveryError::Gone)
        });
        let without_slice = self.rounds >= SLICE_ROUNDS;
        self.remaining.retain_mut(|entry| {
            if entry.is_enabled || !(entry.has_slice || without_slice) {
                return true;
            }
            let enabled = entry.group.enable();
            entry.is_enabled = enabled.is_ok();
            enabled != Err(RecoveryError::Gone)
        });
        self.remaining.retain(|entry| !(entry.has_slice && entry.is_enabled));
        let pause = RETRY_MS.get(self.rounds - 1).or(RETRY_MS.last()).copied();
        pause.filter(|_| !self.remaining.is_empty())
    }

    /// Groups that are recovered or gone, and groups of which a control fails.
    pub fn progress(&self) -> (usize, usize) {
        (self.total - self.remaining.len(), self.remaining.len())
    }
}

#[cfg(test)]
mod tests;
