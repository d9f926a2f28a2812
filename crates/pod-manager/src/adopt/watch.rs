//! Which processes are looked into, and when.

use super::Obstacle;
use super::ProcessKey;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

/// A process that has the driver open is given so long to attach by itself.
pub(super) const GRACE_NS: u64 = 2_000_000_000;
/// The pause between two looks into a process: first, and at most. It doubles while nothing changes.
const PAUSES_NS: [u64; 2] = [2_000_000_000, 8_000_000_000];

#[derive(Debug)]
struct State {
    next: u64,
    pause: u64,
    descriptors: Vec<RawFd>,
    /// What was found: handles of groups in order.
    found: Vec<(u32, u32)>,
    obstacle: Option<Obstacle>,
}

/// What is known of processes without the hook.
#[derive(Debug, Default)]
pub(super) struct Watch(HashMap<ProcessKey, State>);

impl Watch {
    /// Forgets all but these.
    pub(super) fn retain(&mut self, present: &HashSet<ProcessKey>) {
        self.0.retain(|key, _| present.contains(key));
    }

    /// Whether to look into a process now, which has these descriptors.
    pub(super) fn is_due(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> bool {
        let state = self.0.entry(key).or_insert_with(|| State {
            next: now.saturating_add(GRACE_NS),
            pause: 0,
            descriptors: descriptors.to_vec(),
            found: Vec::new(),
            obstacle: None,
        });
        // Within its grace it may open and close what it likes.
        let changed = state.pause > 0 && state.descriptors != descriptors;
        if changed {
            state.pause = 0;
        }
        state.descriptors = descriptors.to_vec();
        changed || now >= state.next
    }

    /// What a look has found.
    pub(super) fn looked(
        &mut self,
        key: ProcessKey,
        mut found: Vec<(u32, u32)>,
        obstacle: Option<Obstacle>,
        now: u64,
    ) {
        let Some(state) = self.0.get_mut(&key) else { return };
        found.sort_unstable();
        let [first, most] = PAUSES_NS;
        let same = state.pause > 0 && (&state.found, &state.obstacle) == (&found, &obstacle);
        state.pause = if same { (state.pause * 2).min(most) } else { first };
        state.next = now.saturating_add(state.pause);
        (state.found, state.obstacle) = (found, obstacle);
    }

    /// What was in the way when a process was last looked into.
    pub(super) fn obstacle(&self, key: ProcessKey) -> Option<&Obstacle> {
        self.0.get(&key)?.obstacle.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const KEY: ProcessKey = (7, 70);

    #[test]
    fn a_process_has_time_to_attach_and_is_looked_into_less_and_less_while_nothing_changes() {
        let mut watch = Watch::default();
        let mut looks = Vec::new();
        for second in 0..40 {
            if watch.is_due(KEY, &[3], second * S) {
                looks.push(second);
                watch.looked(KEY, vec![(1, 1)], None, second * S);
            }
        }
        assert_eq!(looks, [2, 4, 8, 16, 24, 32]);
        assert!(!watch.is_due(KEY, &[3], 39 * S));
        assert!(watch.is_due(KEY, &[3, 4], 39 * S), "it has opened the driver once more");
        watch.looked(KEY, vec![(1, 1)], None, 39 * S);
        assert!(watch.is_due(KEY, &[3, 4], 41 * S));
        watch.looked(KEY, vec![(1, 1), (1, 2)], None, 41 * S);
        assert!(watch.is_due(KEY, &[3, 4], 43 * S), "it had something new");
    }

    #[test]
    fn who_was_away_has_its_grace_again() {
        let mut watch = Watch::default();
        assert!(!watch.is_due(KEY, &[3], 0));
        assert!(!watch.is_due(KEY, &[3, 5], S), "opening more does not shorten it");
        watch.retain(&HashSet::new());
        assert!(!watch.is_due(KEY, &[3], 3 * S));
        assert!(watch.is_due(KEY, &[3], 5 * S));
    }
}
