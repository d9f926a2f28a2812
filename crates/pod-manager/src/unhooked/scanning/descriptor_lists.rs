//! The descriptors of processes that may lead to the driver, listed in parts.
//!
//! A process decides how many descriptors it has. So a part is short, and each pod may have only so many descriptors listed per second: a
//! pod with a flood of descriptors delays only its own processes.

use super::ProcessKey;
use super::pod_limits::{DESCRIPTORS, PodLimits};
use sluice_nvrm::discovery::DescriptorPart;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::RawFd;

/// Descriptors of one part: about 1 ms.
const PART: usize = 1 << 10;
/// What a part costs beside its descriptors: opening the folder.
const COST_OF_PART: usize = 8;
/// A process whose number of descriptors stays the same is listed again after this time and up to half as much more, because it may have put
/// another file under a number. Its id spreads the listings.
const AGAIN_NS: u64 = 2_000_000_000;

/// Lists up to so many descriptors of a process, from a number on.
pub(super) type ListPart<'a> = &'a mut dyn FnMut(RawFd, usize) -> io::Result<DescriptorPart>;

#[derive(Debug, Default)]
struct List {
    /// Found by the last complete listing, in ascending order.
    complete: Vec<RawFd>,
    /// Found by the current listing so far.
    found: Vec<RawFd>,
    /// Where the current listing goes on.
    next: Option<RawFd>,
    /// The number of descriptors when the last listing began.
    count: u64,
    /// When a listing is due although nothing has changed.
    again: u64,
}

impl List {
    fn is_due(&self, count: u64, now: u64) -> bool {
        self.next.is_some() || self.count != count || now >= self.again
    }

    fn numbers(&self) -> Vec<RawFd> {
        let mut numbers = [self.complete.as_slice(), &self.found].concat();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// The lists of all known processes.
#[derive(Debug)]
pub(super) struct DescriptorLists {
    lists: HashMap<ProcessKey, List>,
    limits: PodLimits,
    /// The process that was listed last.
    last: i32,
}

impl Default for DescriptorLists {
    fn default() -> Self {
        Self { lists: HashMap::new(), limits: PodLimits::new(DESCRIPTORS), last: 0 }
    }
}

impl DescriptorLists {
    /// Forgets all processes but those that `is_present` selects, and divides the work among these pods.
    pub(super) fn begin_scan(
        &mut self,
        is_present: impl Fn(&ProcessKey) -> bool,
        pods: &HashSet<&str>,
        now: u64,
    ) {
        self.lists.retain(|key, _| is_present(key));
        self.limits.divide(pods, now);
    }

    /// Puts process ids, which are in ascending order, in the order in which each has its turn.
    pub(super) fn order(&self, pids: &mut [i32]) {
        let next = pids.partition_point(|pid| *pid <= self.last);
        pids.rotate_left(next);
    }

    /// The descriptors of a process that may lead to the driver. They are listed if their number has changed, if a listing is not complete,
    /// or after some time, and if the pod's share of the work is not used up. `None`: they were never listed.
    /// Errors: those of `list`.
    pub(super) fn descriptors(
        &mut self,
        key: ProcessKey,
        pod: &str,
        count: u64,
        now: u64,
        list: ListPart<'_>,
    ) -> io::Result<Option<Vec<RawFd>>> {
        let known = self.lists.get(&key);
        let is_due = known.is_none_or(|known| known.is_due(count, now));
        if !is_due || !self.limits.allows(pod, now) {
            return Ok(known.map(List::numbers));
        }
        self.last = key.0;
        let from = known.and_then(|known| known.next).unwrap_or(0);
        let part = list(from, PART)?;
        let cost = u64::try_from(part.listed + COST_OF_PART).unwrap_or(u64::MAX);
        self.limits.charge(pod, cost, now);
        let known = self.lists.entry(key).or_default();
        if from == 0 {
            let spread = u64::from(key.0.unsigned_abs() % 8) * (AGAIN_NS / 16);
            (known.count, known.again) = (count, now.saturating_add(AGAIN_NS + spread));
            known.found.clear();
        }
        known.found.extend(part.driver);
        known.next = part.next;
        if known.next.is_none() {
            known.complete = std::mem::take(&mut known.found);
        }
        Ok(Some(known.numbers()))
    }

    /// Whether descriptors of a process were not listed yet.
    pub(super) fn is_unfinished(&self, key: ProcessKey) -> bool {
        self.lists.get(&key).is_none_or(|list| list.next.is_some())
    }
}

#[cfg(test)]
mod tests;
