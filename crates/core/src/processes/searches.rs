//! Which processes the next search inspects, and what is remembered of processes from search to search.

use super::event::{Effect, Step};
use super::history::History;
use super::table::Processes;
use crate::ids::{ProcessId, ProcessKey};
use std::collections::HashSet;

impl<P, D> Processes<P, D> {
    /// A search begins at once, and inspects a process.
    pub(super) fn inspect_again(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        self.inspect_next(id);
        if self.get(id).is_some_and(|record| record.history.is_requested) {
            step.effects.push(Effect::Search);
        }
    }

    /// As [`Self::inspect_again`], if the process runs without the hook.
    pub(super) fn inspect_unhooked(&mut self, id: ProcessId, step: &mut Step<'_, D>) {
        if self.get(id).is_some_and(|record| record.state.is_unhooked()) {
            self.inspect_again(id, step);
        }
    }

    /// A search begins. Returns the processes that it is to inspect, whether they have changed or not.
    pub fn begin_search(&mut self, now: u64) -> HashSet<ProcessKey> {
        let mut requested = HashSet::new();
        for record in self.records.values_mut() {
            let announces = record.announces();
            if let Some(key) = record.key.filter(|_| record.history.begin_search(true, announces, now)) {
                requested.insert(key);
            }
        }
        for (key, history) in &mut self.absent {
            if history.begin_search(false, false, now) {
                requested.insert(*key);
            }
        }
        self.forget_what_is_over(now);
        requested
    }

    /// A complete search has found these processes, and no others that use the driver. It lists attached ones too: one that detaches during the
    /// search, and is not in the table when the result comes, still counts as one that has attached.
    pub fn candidates_listed(&mut self, candidates: &HashSet<ProcessKey>) {
        for record in self.records.values_mut() {
            if record.key.is_none_or(|key| !candidates.contains(&key)) {
                record.history.unscheduled = None;
            }
        }
        for (_, history) in self.absent.iter_mut().filter(|(key, _)| !candidates.contains(key)) {
            (history.unscheduled, history.has_attached) = (None, false);
        }
        self.absent.retain(|_, history| *history != History::default());
    }

    /// Forgets what does not count any more of processes that are not in the table.
    pub(super) fn forget_what_is_over(&mut self, now: u64) {
        for history in self.absent.values_mut() {
            history.findings.retain(|_, finding| now <= finding.kept_until);
        }
        self.absent.retain(|_, history| *history != History::default());
    }

    /// Of how many processes that are not in the table something is remembered.
    pub fn remembered(&self) -> usize {
        self.absent.len()
    }
}
