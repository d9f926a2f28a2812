//! The descriptors of processes that may lead to the driver, listed in parts.
//!
//! A process decides how many descriptors it has. So a part is short, and each pod may have only so many descriptors listed per second: a
//! pod with a flood of descriptors delays only its own processes. A process that is not listed in time could use the driver meanwhile, so it
//! counts as one with too many descriptors.

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
/// A process with more descriptors is not listed: one with the driver behind so many others is not searched. The number is known since
/// Linux 6.2.
const MOST: u64 = 1 << 14;
/// How long new descriptors of a process may be unlisted: because it has many, or because those of its pod's other processes come first.
const LISTED_WITHIN_NS: u64 = 10_000_000_000;
/// How long a listing may be overdue while the number of descriptors stays the same. Longer, because honest pods with hundreds of processes
/// have some listings late.
const OVERDUE_NS: u64 = 30_000_000_000;

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
    /// It was listed completely at least once.
    is_known: bool,
    /// Since when it has had descriptors that were not listed.
    unfinished_since: Option<u64>,
}

impl List {
    fn is_due(&self, count: u64, now: u64) -> bool {
        self.is_unfinished(count) || now >= self.again
    }

    /// Whether some of the process's descriptors were not listed, as far as their number shows.
    fn is_unfinished(&self, count: u64) -> bool {
        !self.is_known || self.next.is_some() || self.count != count
    }

    fn is_late(&self, now: u64) -> bool {
        let is_over = |since: u64, within: u64| now.saturating_sub(since) >= within;
        self.unfinished_since.is_some_and(|since| is_over(since, LISTED_WITHIN_NS))
            || self.is_known && is_over(self.again, OVERDUE_NS)
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
    /// or after some time, and if the pod's share of the work is not used up.
    /// Errors: those of `list`.
    pub(super) fn descriptors(
        &mut self,
        key: ProcessKey,
        pod: &str,
        count: u64,
        now: u64,
        list: ListPart<'_>,
    ) -> io::Result<Vec<RawFd>> {
        let known = self.lists.entry(key).or_default();
        if known.is_due(count, now) && count <= MOST && self.limits.allows(pod, now) {
            self.last = key.0;
            let from = known.next.unwrap_or(0);
            let part = list(from, PART).inspect_err(|_| *known = List::default())?;
            let cost = u64::try_from(part.listed + COST_OF_PART).unwrap_or(u64::MAX);
            self.limits.charge(pod, cost, now);
            if from == 0 {
                let spread = u64::from(key.0.unsigned_abs() % 8) * (AGAIN_NS / 16);
                (known.count, known.again) = (count, now.saturating_add(AGAIN_NS + spread));
                known.found.clear();
            }
            known.found.extend(part.driver);
            known.next = part.next;
            if known.next.is_none() {
                known.complete = std::mem::take(&mut known.found);
                (known.is_known, known.unfinished_since) = (true, None);
            }
        }
        if known.is_unfinished(count) {
            known.unfinished_since.get_or_insert(now);
        }
        Ok(known.numbers())
    }

    /// Whether descriptors of a process were not listed yet, as far as their present number shows.
    pub(super) fn is_unfinished(&self, key: ProcessKey, count: u64) -> bool {
        self.lists.get(&key).is_none_or(|list| list.is_unfinished(count))
    }

    /// Why a process has too many descriptors, in words: more than are listed, or they were not listed in time. `None`: it has not.
    pub(super) fn excess(&self, key: ProcessKey, count: u64, now: u64) -> Option<String> {
        if count > MOST {
            return Some(format!("process {} has {count} descriptors, and up to {MOST} are searched", key.0));
        }
        self.lists.get(&key).filter(|list| list.is_late(now)).map(|_| {
            format!("the descriptors of process {} were not searched in time: its pod has too many", key.0)
        })
    }
}

#[cfg(test)]
mod tests;
