//! The runlist: which context has the multiprocessors, for how long, and what a context switch costs.
//!
//! As long as more than one context has kernels, they run round-robin, each for its time slice. A context without kernels is
//! skipped at once. A preempted context is saved with its kernels and continues them later. Restarting them takes
//! part of its slice, so contexts with slices shorter than that make no progress beside each other.

use super::collective::Arrival;
use super::group::{Access, Group, Running, Task};
use super::hold::Step;
use super::{GroupId, OwnerId};
use crate::params;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Front {
    #[default]
    Idle,
    /// A context runs. Its slice began at `slice_start`, and its kernels make progress from `warm_at` on. If another
    /// context waits, the slice ends at `ends`, or at `yields` if it runs only hold kernels until then.
    Running { group: GroupId, slice_start: u64, warm_at: u64, ends: Option<u64>, yields: Option<u64> },
    /// No context runs until `until`; then `to` does, if there is one. If `is_cold`, the time to restart its kernels
    /// is added.
    Switching { to: Option<GroupId>, until: u64, is_cold: bool },
}

#[derive(Debug, Default)]
pub(super) struct Runlist {
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) front: Front,
    /// The context whose state is on the GPU.
    resident: Option<GroupId>,
    /// The context that ran last: the next one in the list follows.
    last: Option<GroupId>,
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) began: Option<OwnerId>,
    pub(super) switched: bool,
    pub(super) holds: Vec<Task>,
    pub(super) arrivals: Vec<Arrival>,
}

impl Runlist {
    /// The time of the next change if nothing is submitted or controlled.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        match self.front {
            Front::Idle => None,
            Front::Switching { until, .. } => Some(until),
            Front::Running { group, warm_at, ends, yields, .. } => {
                let begin = now.max(warm_at);
                let progressing = self.groups[&group].running.iter().filter(|running| !running.is_spinning);
                let shortest = progressing.map(|running| begin + running.left_ns).min();
                let warm = (warm_at > now).then_some(warm_at);
                shortest.into_iter().chain(ends).chain(yields).chain(warm).min()
            }
        }
    }

    pub(super) fn is_switching(&self, now: u64) -> bool {
        match self.front {
            Front::Idle => false,
            Front::Switching { .. } => true,
            Front::Running { warm_at, .. } => warm_at > now,
        }
    }

    pub(super) fn on(&self) -> Option<GroupId> {
        match self.front {
            Front::Running { group, .. } => Some(group),
            _ => None,
        }
    }

    pub(super) fn is_on(&self, id: GroupId) -> bool {
        self.on() == Some(id)
    }

    /// Whether another group has the GPU, or a switch is in progress.
    pub(super) fn is_taken_from(&self, id: GroupId) -> bool {
        match self.front {
            Front::Idle => false,
            Front::Switching { .. } => true,
            Front::Running { group, .. } => group != id,
        }
    }

    /// The owners with work that may run, each once.
    pub(super) fn owners(&self) -> impl Iterator<Item = OwnerId> + use<> {
        let runnable = self.groups.values().filter(|group| group.is_runnable());
        let mut owners: Vec<OwnerId> = runnable.map(|group| group.owner).collect();
        owners.sort_unstable_by_key(|owner| owner.0);
        owners.dedup();
        owners.into_iter()
    }

    /// Advances the running kernels by `ns`, in which no event occurs. Returns the owner that ran, if any.
    pub(super) fn elapse(&mut self, now: u64, ns: u64) -> Option<OwnerId> {
        if self.is_switching(now) {
            return None;
        }
        let Front::Running { group, .. } = self.front else { return None };
        let group = self.groups.get_mut(&group)?;
        for running in &mut group.running {
            running.left_ns -= if running.is_spinning { 0 } else { ns };
            running.ran_ns += ns;
        }
        Some(group.owner)
    }

    /// Begins the next parts of collective kernels.
    pub(super) fn begin_next_parts(&mut self) -> Vec<Arrival> {
        let Front::Running { group, .. } = self.front else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&group) else { return Vec::new() };
        let ended = group.running.iter_mut().filter(|running| running.left_ns == 0);
        ended.filter_map(Running::next_part).collect()
    }

    pub(super) fn finished(&mut self) -> Vec<Task> {
        let Front::Running { group, .. } = self.front else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&group) else { return Vec::new() };
        let done = group.running.extract_if(.., |running| running.left_ns == 0);
        done.map(|running| Task { ns: running.ran_ns, ..running.task }).collect()
    }

    /// Removes a group, running or not.
    pub(super) fn remove(&mut self, id: GroupId) {
        self.groups.remove(&id);
        if self.resident == Some(id) {
            self.resident = None;
        }
        if self.is_on(id) {
            self.front = Front::Idle;
        }
    }

    /// Sets a group's time slice; applies to the running slice too.
    pub(super) fn set_timeslice(&mut self, id: GroupId, ns: u64) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.timeslice_ns = ns.max(1);
        }
        if let Front::Running { group, ends, .. } = &mut self.front
            && *group == id
        {
            *ends = None;
        }
    }

    /// Ends the slice of the running group, if it is this one.
    pub(super) fn preempt(&mut self, id: GroupId, now: u64) -> Changes {
        if !self.is_on(id) || self.groups.get(&id).is_none_or(|group| group.running.is_empty()) {
            return Changes::default();
        }
        let to = self.next_after(Some(id));
        self.save_running(id, to, now);
        Changes { switched: true, ..Changes::default() }
    }

    /// Shows a word to the hold kernels that poll it. Returns those that see a change of the activity for the first time.
    pub(super) fn set_word(&mut self, owner: OwnerId, address: u64, value: u64, now: u64) -> Vec<Task> {
        let mut first = Vec::new();
        for group in self.groups.values_mut().filter(|group| group.owner == owner) {
            for running in &mut group.running {
                let Some(hold) = running.task.hold.as_mut().filter(|hold| hold.address == address) else {
                    continue;
                };
                match hold.read(value, now) {
                    Step::Unchanged => {}
                    Step::Until { deadline, is_first } => {
                        (running.left_ns, running.deadline) = (deadline - now, Some(deadline));
                        first.extend(is_first.then_some(running.task));
                    }
                    Step::Released { is_first } => {
                        first.extend(is_first.then_some(running.task));
                        running.left_ns = running.left_ns.min(params::HOLD_POLL_NS);
                        running.deadline = None;
                    }
                }
            }
        }
        first
    }

    /// The next runnable group after this one in round-robin order; this group comes last.
    fn next_after(&self, id: Option<GroupId>) -> Option<GroupId> {
        let runnable = |(id, group): (&GroupId, &Group)| group.is_runnable().then_some(*id);
        let Some(id) = id else { return self.groups.iter().find_map(runnable) };
        let later = self.groups.range(id..).skip_while(|(other, _)| **other == id);
        later.chain(self.groups.range(..=id)).find_map(runnable)
    }

    /// Saves a group in the middle of its kernels, and switches to another one.
    fn save_running(&mut self, id: GroupId, to: Option<GroupId>, now: u64) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.save();
        }
        self.resident = None;
        let is_stalled = to.and_then(|to| self.groups.get(&to)).is_some_and(|to| to.is_stalled);
        let load = if is_stalled { params::LOAD_NS - params::WARM_NS } else { 0 };
        self.front = Front::Switching { to, until: now + params::PREEMPT_NS + load, is_cold: true };
    }

    /// Saves a resident group without work, and loads another one within `ns`.
    fn load(&mut self, to: GroupId, ns: u64, now: u64) {
        if let Some(group) = self.resident.take().and_then(|id| self.groups.get_mut(&id)) {
            group.save();
        }
        self.front = Front::Switching { to: Some(to), until: now + ns, is_cold: false };
    }

    fn end_switch(&mut self, to: Option<GroupId>, is_cold: bool, now: u64) {
        self.front = Front::Idle;
        let Some(to) = to else { return };
        let Some(group) = self.groups.get_mut(&to).filter(|group| group.is_runnable()) else { return };
        let warm_at = now + if is_cold && group.is_stalled { params::WARM_NS } else { 0 };
        group.resume(warm_at);
        (self.resident, self.last) = (Some(to), Some(to));
        self.run(to, now, warm_at);
    }

    /// Begins a slice of a group, whose kernels make progress from `warm_at` on.
    fn run(&mut self, group: GroupId, slice_start: u64, warm_at: u64) {
        self.front = Front::Running { group, slice_start, warm_at, ends: None, yields: None };
    }

    /// Brings the runlist into the state due at `now`; called after every change.
    pub(super) fn settle(&mut self, now: u64) -> Changes {
        let mut changes = Changes::default();
        loop {
            match self.front {
                Front::Switching { to, until, is_cold } if until <= now => self.end_switch(to, is_cold, now),
                Front::Switching { .. } => return changes,
                Front::Idle => {
                    let resident =
                        self.resident.filter(|id| self.groups.get(id).is_some_and(Group::is_runnable));
                    if let Some(group) = resident {
                        self.run(group, now, now);
                    } else if let Some(to) = self.next_after(self.last) {
                        changes.switched = true;
                        self.load(to, params::LOAD_NS, now);
                    } else {
                        return changes;
                    }
                }
                Front::Running { group: id, slice_start, warm_at, ends, .. } => {
                    let (runnable, is_busy, slice) =
                        self.groups.get(&id).map_or((false, false, 1), |group| {
                            (group.is_runnable(), !group.running.is_empty(), group.timeslice_ns)
                        });
                    let next = self.next_after(Some(id));
                    match next {
                        _ if !runnable && is_busy => {
                            changes.switched = true;
                            self.save_running(id, next, now);
                            continue;
                        }
                        None => {
                            self.front = Front::Idle;
                            return changes;
                        }
                        Some(to) if !runnable => {
                            changes.switched = true;
                            self.load(to, params::IDLE_SWITCH_NS, now);
                            continue;
                        }
                        Some(_) => {}
                    }
                    let other = next.filter(|other| *other != id);
                    let ends = other.map(|_| ends.unwrap_or_else(|| boundary(slice_start, slice, now)));
                    let alone_since = self.groups.get(&id).and_then(|group| group.alone_since);
                    let yields = alone_since
                        .filter(|_| other.is_some())
                        .map(|since| since.max(slice_start) + params::LONE_HOLD_NS);
                    if other.is_some() && ends.into_iter().chain(yields).any(|end| end <= now) {
                        changes.switched = true;
                        self.save_running(id, other, now);
                        continue;
                    }
                    self.front = Front::Running { group: id, slice_start, warm_at, ends, yields };
                    if let Some(group) = self.groups.get_mut(&id) {
                        let before = group.dispatch(now);
                        let begun = &group.running[before..];
                        changes.began = (!begun.is_empty()).then_some(group.owner);
                        let tasks = begun.iter().map(|running| running.task);
                        changes.holds.extend(tasks.filter(|task| task.hold.is_some()));
                        changes.arrivals.extend(begun.iter().filter_map(Running::arrival));
                    }
                    return changes;
                }
            }
        }
    }

    /// The shortest time from `now` until this group's kernels can continue: 0 if they run; `None` while the group is stopped.
    pub(super) fn least_wait(&self, id: GroupId, now: u64) -> Option<u64> {
        if self.groups.get(&id).is_some_and(|group| group.access == Access::Stopped) {
            return None;
        }
        Some(match self.front {
            Front::Running { group, warm_at, .. } if group == id => warm_at.saturating_sub(now),
            Front::Switching { to, until, .. } if to == Some(id) => until - now,
            Front::Switching { until, .. } => until - now + params::LOAD_NS,
            Front::Running { .. } => params::LOAD_NS,
            Front::Idle => 0,
        })
    }
}

/// The first end of a slice after `now`: slices follow each other from `start` while no other context has work.
pub(super) fn boundary(start: u64, slice: u64, now: u64) -> u64 {
    let gone = now - start;
    start + (gone / slice + 1) * slice
}
