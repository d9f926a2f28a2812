//! Which processes are looked into, and when.

use super::Obstacle;
use super::ProcessKey;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

/// A process that has the driver open is given so long to attach by itself.
pub(super) const GRACE_NS: u64 = 2_000_000_000;
/// The pause between two looks into a process: first, and at most. It doubles while nothing changes.
const PAUSES_NS: [u64; 2] = [2_000_000_000, 8_000_000_000];

/// Who opens and closes the driver all the time is looked into at once the first time, then with these pauses at least and at most; they
/// double while nothing new is found.
const HUSH_NS: [u64; 2] = [1_000_000_000, PAUSES_NS[1]];

#[derive(Debug)]
struct State {
    next: u64,
    pause: u64,
    /// When it was looked into last, and how long it is left alone after that though its descriptors change.
    looked: u64,
    hush: u64,
    /// Its descriptors have changed since.
    changed: bool,
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

    /// Since when a process, which has these descriptors, is to be looked into; `None`: it is not yet.
    pub(super) fn due_since(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> Option<u64> {
        let state = self.0.entry(key).or_insert_with(|| State {
            next: now.saturating_add(GRACE_NS),
            pause: 0,
            looked: now,
            hush: 0,
            changed: false,
            descriptors: descriptors.to_vec(),
            found: Vec::new(),
            obstacle: None,
        });
        // Within its grace it may open and close what it likes.
        if state.pause > 0 && state.descriptors != descriptors && !state.changed {
            state.changed = true;
            state.next = state.next.min(state.looked.saturating_add(state.hush).max(now));
        }
        state.descriptors = descriptors.to_vec();
        (now >= state.next).then_some(state.next)
    }

    /// There is something new to be found at a process.
    pub(super) fn hurry(&mut self, key: ProcessKey, now: u64) {
        if let Some(state) = self.0.get_mut(&key) {
            state.next = state.next.min(now);
        }
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
        let [quiet, quietest] = HUSH_NS;
        let same = state.pause > 0 && (&state.found, &state.obstacle) == (&found, &obstacle);
        (state.hush, state.pause) = match (same, std::mem::take(&mut state.changed)) {
            (false, _) => (0, first),
            (true, true) => {
                let hush = (state.hush * 2).clamp(quiet, quietest);
                (hush, hush.max(first))
            }
            (true, false) => (state.hush / 2, (state.pause * 2).min(most)),
        };
        state.looked = now;
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

    impl Watch {
        fn is_due(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> bool {
            self.due_since(key, descriptors, now).is_some()
        }
    }
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

    #[test]
    fn who_opens_and_closes_the_driver_all_the_time_is_not_looked_into_all_the_time_and_never_for_long_not() {
        let mut watch = Watch::default();
        let mut looks = Vec::new();
        for second in 0..60 {
            if watch.is_due(KEY, &[3, 4 + second % 2], u64::try_from(second).unwrap() * S) {
                looks.push(second);
                // At last there is something behind it.
                let found = if second > 50 { vec![(1, 1)] } else { vec![] };
                watch.looked(KEY, found, None, u64::try_from(second).unwrap() * S);
            }
        }
        assert_eq!(looks, [2, 3, 4, 6, 10, 18, 26, 34, 42, 50, 58, 59]);
    }

    #[test]
    fn who_has_something_new_is_looked_into_at_once() {
        let mut watch = Watch::default();
        assert!(!watch.is_due(KEY, &[3], 0) && watch.is_due(KEY, &[3], 2 * S));
        watch.looked(KEY, vec![], None, 2 * S);
        watch.hurry(KEY, 3 * S);
        assert_eq!(watch.due_since(KEY, &[3], 4 * S), Some(3 * S));
    }
}
