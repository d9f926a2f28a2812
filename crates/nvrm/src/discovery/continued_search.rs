//! The search that continues from scan to scan, for clients that the first inspection of a file did not find.

use std::collections::{BTreeMap, HashSet};

use super::client_search::QueryBudget;
use super::descriptors;
use super::group_discovery::{GroupDiscovery, ProcessKey, ScannedProcess};
use super::limits::{MIN_CONTINUED, SCANS_BEFORE_RESTART};

/// An equal part of the remaining budget for one of `count`.
fn part_of(queries: &QueryBudget, count: usize) -> u32 {
    queries.remaining() / u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

impl GroupDiscovery {
    /// Continues the search for clients on the open files of these processes. Returns the processes with a client that was not known.
    ///
    /// Each pod of these processes receives an equal part of the budget, and the pods with the fewest files leave the rest of their part to the others.
    /// Within a pod the file that has waited longest comes first.
    pub fn continue_search(
        &mut self,
        processes: &[ScannedProcess<'_>],
        queries: &QueryBudget,
    ) -> HashSet<ProcessKey> {
        let keys = processes.iter().map(|process| process.key).collect();
        let mut pods = self.unfinished_files(&keys);
        pods.sort_by_key(Vec::len);
        let mut with_new = HashSet::new();
        for (at, files) in pods.iter().enumerate() {
            queries.lend(part_of(queries, pods.len() - at), |part| {
                for (nth, (_, id)) in files.iter().enumerate() {
                    let share = part_of(part, files.len() - nth).max(MIN_CONTINUED).min(part.remaining());
                    if share == 0 {
                        break;
                    }
                    if part.lend(share, |share| self.continue_file(*id, processes, share)) {
                        let holders =
                            self.files.get_mut(*id).into_iter().flat_map(|file| file.holders.iter());
                        with_new.extend(holders.map(|(key, _)| *key));
                    }
                }
            });
        }
        with_new
    }

    /// The files of these processes with numbers that were not queried, by pod: the scan of the last query, and the file's number.
    fn unfinished_files(&mut self, of: &HashSet<ProcessKey>) -> Vec<Vec<(u64, u64)>> {
        let mut unfinished: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        let newest = self.numbering.newest();
        for (id, file) in self.files.iter_mut() {
            let is_old = file.completed_in.is_some_and(|scan| scan + SCANS_BEFORE_RESTART < self.scan);
            if file.search.clients().is_empty() && is_old {
                file.completed_in = None;
                file.search.restart(newest);
            }
            let is_unfinished = file.completed_in.is_none() || file.search.is_behind(newest);
            if is_unfinished && file.holders.iter().any(|(key, _)| of.contains(key)) {
                unfinished.entry(file.pod.clone()).or_default().push((file.searched_in, id));
            }
        }
        let mut pods: Vec<_> = unfinished.into_values().collect();
        pods.iter_mut().for_each(|files| files.sort_unstable());
        pods
    }

    /// Continues the search on one file. Returns whether it found a client that was not known.
    fn continue_file(&mut self, id: u64, processes: &[ScannedProcess<'_>], queries: &QueryBudget) -> bool {
        let (range, newest) = (self.number_range(), self.numbering.newest());
        let Some(file) = self.files.get_mut(id) else { return false };
        let copy = file.holders.iter().find_map(|(key, number)| {
            let process = processes.iter().find(|process| process.key == *key)?;
            descriptors::copy_descriptor(process.pidfd, *number, self.simulated).ok().flatten()
        });
        let Some(copy) = copy else { return false };
        file.searched_in = self.scan;
        let known = file.search.clients().len();
        // After an error of the driver the next scan queries the same numbers again.
        if file.search.is_behind(newest) {
            let _ = file.search.search_newer(&copy.controls, &self.numbering, queries);
        }
        let _ = file.search.search_older(&copy.controls, range, queries, |_, _| false);
        file.completed_in = file.search.is_complete(range).then_some(self.scan);
        let has_new = file.search.clients().len() > known;
        if has_new {
            file.walk = None;
        }
        has_new
    }
}
