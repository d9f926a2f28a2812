//! The order of work for the processes of several pods.

use std::collections::HashMap;

/// Processes that one complete search looks at: it opens a pidfd of each and reads some of its files.
const MOST_IN_SEARCH: usize = 1 << 10;

/// Orders work by a key: the first one of each pod, then the second one of each pod, and so on. So a pod with many processes delays only itself.
pub(super) fn in_turn<K: Ord, T>(mut due: Vec<(K, &str, T)>) -> impl Iterator<Item = T> {
    due.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let mut of_pods: HashMap<&str, usize> = HashMap::new();
    let mut in_turn: Vec<(usize, T)> = Vec::new();
    for (_, pod, work) in due {
        let of_pod = of_pods.entry(pod).or_default();
        in_turn.push((*of_pod, work));
        *of_pod += 1;
    }
    in_turn.sort_by_key(|(turn, _)| *turn);
    in_turn.into_iter().map(|(_, work)| work)
}

/// Which processes each complete search looks at.
#[derive(Debug)]
pub(super) struct SearchTurns {
    /// How many processes one search looks at.
    pub(super) most: usize,
    searches: u64,
    /// The search that has looked at each process last.
    last: HashMap<i32, u64>,
}

impl Default for SearchTurns {
    fn default() -> Self {
        Self { most: MOST_IN_SEARCH, searches: 0, last: HashMap::new() }
    }
}

impl SearchTurns {
    /// Divides processes, each with its pod, into those that the next search looks at and the others, in their order: one of each pod in turn, and
    /// of a pod those first that were looked at longest ago.
    pub(super) fn divide(&mut self, processes: &[(i32, &str)]) -> (Vec<i32>, Vec<i32>) {
        self.searches += 1;
        let last = |pid| self.last.get(pid).copied().unwrap_or(0);
        let due = processes.iter().enumerate().map(|(at, (pid, pod))| ((last(pid), at), *pod, *pid));
        let chosen = in_turn(due.collect()).take(self.most);
        let chosen: HashMap<i32, u64> = chosen.map(|pid| (pid, self.searches)).collect();
        let known = |(pid, _): &(i32, &str)| Some((*pid, *chosen.get(pid).or_else(|| self.last.get(pid))?));
        self.last = processes.iter().filter_map(known).collect();
        processes.iter().map(|(pid, _)| *pid).partition(|pid| chosen.contains_key(pid))
    }
}

#[cfg(test)]
mod tests;
