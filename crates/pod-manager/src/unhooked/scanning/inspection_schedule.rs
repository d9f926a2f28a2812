//! When each process is inspected.

use super::Obstacle;
use super::ProcessKey;
use super::turns::in_turn;
use sluice_rate_limiter::Backoff;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;
use std::time::Duration;

/// The time from the search that finds a process with the driver open until its first inspection. A program that has just been executed maps
/// its libraries meanwhile.
const FIRST_DELAY_NS: u64 = 250_000_000;
/// The time that a process has to attach by itself if it has mapped a hook. `cuInit` opens the driver, and may take seconds before the hook
/// attaches.
const ATTACH_GRACE_NS: u64 = 2_000_000_000;
/// The first and the longest delay between two inspections of a process in which nothing changes.
const DELAYS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// The same for a process that has attached, also after its descriptors have changed: a driver library opens the driver some time before it
/// makes its channel groups. The longest delay bounds how long a process has groups of ioctls of its own, without a new descriptor.
const ATTACHED_DELAYS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(16)];
/// From this delay on, an attached process is inspected at a time that it cannot foresee: after half of the delay to the whole.
const UNFORESEEABLE: Duration = Duration::from_secs(1);

/// Processes at which a search between two complete ones looks because an inspection is due or requested. It has time for some ten inspections.
const MOST_BETWEEN: usize = 1 << 8;

#[derive(Debug)]
struct State {
    /// The UID of its pod.
    pod: String,
    /// When the next inspection is due.
    due: u64,
    delay: Backoff,
    /// It has attached, and `delay` is that of an attached process.
    is_attached: bool,
    descriptors: Vec<RawFd>,
    /// The result of the last inspection; `None` before the first.
    last: Option<LastInspection>,
    /// When a search found it first.
    found: u64,
    /// It was looked whether the process has mapped a hook.
    is_hook_known: bool,
    /// It has attached, and nothing has changed for some inspections.
    is_settled: bool,
    /// Its pod has used up its queries: only complete searches look at it.
    is_deferred: bool,
}

impl State {
    /// When a process is due, its pod, and which process it is.
    fn turn<'a>((key, state): (&ProcessKey, &'a Self)) -> ((u64, ProcessKey), &'a str, ProcessKey) {
        ((state.due, *key), &state.pod, *key)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct LastInspection {
    /// Handles of the groups, sorted.
    groups: Vec<(u32, u32)>,
    obstacle: Option<Obstacle>,
}

/// The inspection schedule of all candidates.
#[derive(Debug, Default)]
pub(super) struct InspectionSchedule {
    states: HashMap<ProcessKey, State>,
    /// Its keys come from the system's random numbers.
    random: RandomState,
}

impl InspectionSchedule {
    /// Forgets all processes but these.
    pub(super) fn retain(&mut self, present: &HashSet<ProcessKey>) {
        self.states.retain(|key, _| present.contains(key));
    }

    /// The time since which an inspection of a process of a pod is due; `None` if none is due. `descriptors` are its present ones. A process that has
    /// attached is inspected at once: what it has is what it announced.
    pub(super) fn due_since(
        &mut self,
        (key, pod): (ProcessKey, &str),
        descriptors: &[RawFd],
        is_attached: bool,
        now: u64,
    ) -> Option<u64> {
        let ([first, longest], grace) =
            if is_attached { (ATTACHED_DELAYS, 0) } else { (DELAYS, FIRST_DELAY_NS) };
        let state = self.states.entry(key).or_insert_with(|| State {
            pod: pod.to_owned(),
            due: now.saturating_add(grace),
            delay: Backoff::new(first, longest),
            is_attached,
            descriptors: descriptors.to_vec(),
            last: None,
            found: now,
            is_hook_known: false,
            is_settled: false,
            is_deferred: false,
        });
        if std::mem::replace(&mut state.is_attached, is_attached) != is_attached {
            state.delay = Backoff::new(first, longest);
            // A process that has attached once has no further time to attach.
            state.due = state.due.min(now);
        }
        if state.descriptors != descriptors {
            state.descriptors = descriptors.to_vec();
            // Descriptors opened before the first inspection do not shorten the time to attach.
            if state.last.is_some() || is_attached {
                state.due = state.due.min(now);
            }
            state.is_settled = false;
            if is_attached {
                state.delay.succeeded();
            }
        }
        (now >= state.due).then_some(state.due)
    }

    /// The processes at which a search between two complete ones looks: those of which an inspection is requested or due, without those whose pods
    /// have used up their queries. Of those in which nothing changes only so many, of the pods that `may_inspect` selects. One of each pod
    /// comes in turn, and those first that have waited longest.
    pub(super) fn due(
        &self,
        requested: &HashMap<ProcessKey, u64>,
        now: u64,
        most_settled: usize,
        mut may_inspect: impl FnMut(&str) -> bool,
    ) -> Vec<ProcessKey> {
        let is_due = |state: &State| now >= state.due && !state.is_deferred;
        let due = self.states.iter().filter(|(_, state)| is_due(state));
        let (settled, others): (Vec<_>, Vec<_>) = due.partition(|(_, state)| state.is_settled);
        let affordable = settled.into_iter().filter(|(_, state)| may_inspect(&state.pod));
        let affordable = affordable.map(State::turn).collect();
        // The pod of a process that no search has looked at yet is not known.
        let pod = |key| self.states.get(key).map_or("", |state| &state.pod);
        let requested = requested.iter().map(|(key, since)| ((*since, *key), pod(key), *key));
        let others = requested.chain(others.into_iter().map(State::turn)).collect();
        in_turn(others).take(MOST_BETWEEN).chain(in_turn(affordable).take(most_settled)).collect()
    }

    /// Whether it has to be looked whether a process that is due has mapped a hook. True once, before its first inspection.
    pub(super) fn needs_hook(&mut self, key: ProcessKey) -> bool {
        let state = self.states.get_mut(&key);
        state.is_some_and(|state| {
            let is_unknown = !state.is_attached && state.last.is_none() && !state.is_hook_known;
            state.is_hook_known |= is_unknown;
            is_unknown
        })
    }

    /// Gives a process that has mapped a hook the time to attach.
    pub(super) fn wait_for_attach(&mut self, key: ProcessKey) {
        if let Some(state) = self.states.get_mut(&key) {
            state.due = state.found.saturating_add(ATTACH_GRACE_NS);
        }
    }

    /// Whether a process has attached, and nothing has changed for some inspections.
    pub(super) fn is_settled(&self, key: ProcessKey) -> bool {
        self.states.get(&key).is_some_and(|state| state.is_settled)
    }

    /// Makes an inspection due now.
    pub(super) fn set_due(&mut self, key: ProcessKey, now: u64) {
        if let Some(state) = self.states.get_mut(&key) {
            state.due = state.due.min(now);
        }
    }

    /// Makes an inspection due for the next complete search.
    pub(super) fn defer(&mut self, key: ProcessKey, now: u64) {
        self.set_due(key, now);
        if let Some(state) = self.states.get_mut(&key) {
            state.is_deferred = true;
        }
    }

    /// Records the result of an inspection. The delay doubles while the result stays the same.
    pub(super) fn record(
        &mut self,
        key: ProcessKey,
        mut groups: Vec<(u32, u32)>,
        obstacle: Option<Obstacle>,
        now: u64,
    ) {
        let number = self.random.hash_one((key, now));
        let Some(state) = self.states.get_mut(&key) else { return };
        groups.sort_unstable();
        let result = LastInspection { groups, obstacle };
        if state.last.as_ref() != Some(&result) {
            state.delay.succeeded();
        }
        let delay = state.delay.next_delay();
        let mut ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        state.is_settled = state.is_attached && delay >= UNFORESEEABLE;
        if state.is_settled {
            ns -= number % (ns / 2);
        }
        state.due = now.saturating_add(ns);
        state.last = Some(result);
        state.is_deferred = false;
    }

    /// The obstacle that the last inspection of a process met.
    pub(super) fn obstacle(&self, key: ProcessKey) -> Option<&Obstacle> {
        self.states.get(&key)?.last.as_ref()?.obstacle.as_ref()
    }
}

#[cfg(test)]
mod tests;
