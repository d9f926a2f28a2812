//! Brings the groups from their known settings to the wanted ones, one control after the other.
//!
//! The invariant: at most one group that may be enabled may have a slice below [`TINY_SLICE_US`](super::TINY_SLICE_US). An unknown
//! setting counts as the worst case: a group that was just announced, or whose control failed, may be enabled with any
//! slice. A longer slice may always be set and any group may always be disabled, so that every state can be left.

use super::control::{Control, ControlOutcome, GroupId, Setting};
use super::group::{Group, Others};
use std::collections::BTreeMap;

/// All groups of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reconciler {
    pub(super) groups: BTreeMap<GroupId, Group>,
    in_flight: Option<Control>,
    /// Slices cannot be set: all groups have the driver's default.
    no_slices: bool,
}

impl Reconciler {
    /// A reconciler without groups. `slices`: slices can be set.
    pub fn new(slices: bool) -> Self {
        Self { no_slices: !slices, ..Self::default() }
    }

    /// Adds a group of unknown setting, or marks the setting of a known one as unknown. The wanted setting is free until
    /// [`Self::want`] changes it. The release of a group that was being released is cancelled.
    pub fn add(&mut self, group: GroupId) {
        let in_flight = self.in_flight.is_some_and(|control| control.group == group);
        self.groups.entry(group).or_insert(Group::new()).announced(in_flight);
    }

    /// Sets the wanted setting of a group. Ignored if the group is being released or is not known.
    pub fn want(&mut self, group: GroupId, setting: Setting) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.releasing) {
            group.want = setting;
        }
    }

    /// Releases a group: it is set free and then appears in [`Self::take_released`]. If that fails it is tried again.
    pub fn release(&mut self, group: GroupId) {
        self.set_free(group);
        if let Some(group) = self.groups.get_mut(&group) {
            (group.releasing, group.frozen_until) = (true, None);
        }
    }

    /// Sets the wanted setting to free, and tries the controls at once that wait after a failure.
    pub fn set_free(&mut self, group: GroupId) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.releasing) {
            group.want = Setting::FREE;
            group.failures.restart();
        }
    }

    /// Tries the controls again whose delay after a failure has passed.
    pub fn retry(&mut self, now: u64) {
        self.groups.values_mut().for_each(|group| group.failures.retry(now));
    }

    /// When the next delay after a failure ends.
    pub fn retry_at(&self, now: u64) -> Option<u64> {
        self.groups.values().map(|group| group.failures.wait_until()).filter(|until| *until > now).min()
    }

    /// Whether a control of a group has failed as often as it is tried in a row.
    pub fn has_failed(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|group| group.failures.any())
    }

    /// Whether the delay after the last failure of a group has not passed.
    pub fn is_delayed(&self, group: GroupId, now: u64) -> bool {
        self.groups.get(&group).is_some_and(|group| group.failures.wait_until() > now)
    }

    /// Whether a group is free, and the delay after its last failure has passed.
    pub fn is_proven(&self, group: GroupId, now: u64) -> bool {
        let is_free = |known: &Group| known.is_free(self.no_slices);
        !self.is_delayed(group, now) && self.groups.get(&group).is_some_and(is_free)
    }

    /// Makes no further control for a group until it is added or forgotten, or [released](Self::release_frozen) after `until`.
    /// A group that is being released is not frozen: its release continues.
    pub fn freeze(&mut self, group: GroupId, until: u64) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.releasing) {
            group.frozen_until = Some(until);
        }
    }

    /// When the next frozen group is to be released.
    pub fn frozen_until(&self) -> Option<u64> {
        self.groups.values().filter_map(|group| group.frozen_until).min()
    }

    /// Releases the groups that are frozen until `now` or before.
    pub fn release_frozen(&mut self, now: u64) {
        let due =
            self.groups.iter().filter(|(_, group)| group.frozen_until.is_some_and(|until| until <= now));
        for group in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.release(group);
        }
    }

    /// Removes a group: its owner has ended.
    pub fn forget(&mut self, group: GroupId) {
        match self.groups.get_mut(&group) {
            Some(known) if self.in_flight.is_some_and(|control| control.group == group) => {
                known.owner_gone = true;
            }
            _ => drop(self.groups.remove(&group)),
        }
    }

    /// Begins the next control, if none is in flight and a group is not as wanted.
    pub fn begin(&mut self) -> Option<Control> {
        self.in_flight = Some(self.next_control()?);
        self.in_flight
    }

    /// Records the result of the control in flight, and removes a group that has gone. Returns the control, unless the
    /// group was forgotten meanwhile.
    pub fn done(&mut self, outcome: ControlOutcome, now: u64) -> Option<Control> {
        let control = self.in_flight.take()?;
        let group = self.groups.get_mut(&control.group)?;
        let owner_gone = group.owner_gone;
        if owner_gone || outcome == ControlOutcome::Gone {
            self.groups.remove(&control.group);
        } else {
            group.done(control.op, outcome, now);
        }
        (!owner_gone).then_some(control)
    }

    /// The released groups that are free. They are removed.
    pub fn take_released(&mut self) -> Vec<GroupId> {
        let in_flight = self.in_flight.map(|control| control.group);
        let is_done = |id: &GroupId, group: &mut Group| {
            group.releasing && in_flight != Some(*id) && group.is_free(self.no_slices)
        };
        self.groups.extract_if(.., is_done).map(|(id, _)| id).collect()
    }

    /// Whether a group may be enabled, as far as is known.
    pub fn may_run(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(Group::may_run)
    }

    /// The control in flight.
    pub const fn in_flight(&self) -> Option<Control> {
        self.in_flight
    }

    fn next_control(&self) -> Option<Control> {
        if self.in_flight.is_some() {
            return None;
        }
        let tiny_counts = self.tiny_counts();
        let steps = self.groups.iter().filter(|(_, group)| !group.owner_gone).filter_map(|(id, group)| {
            let (urgency, op) = group.step(tiny_counts.without(group))?;
            Some((urgency, Control { group: *id, op }))
        });
        // Among equally urgent controls, the oldest group's goes first.
        steps.min_by_key(|(urgency, _)| *urgency).map(|(_, control)| control)
    }

    fn tiny_counts(&self) -> TinyCounts {
        let count = |which: fn(&Group) -> bool| self.groups.values().filter(|group| which(group)).count();
        let (tiny, unsliceable) = (count(Group::is_tiny), count(Group::is_unsliceable));
        TinyCounts { tiny, unsliceable, no_slices: self.no_slices }
    }
}

/// How many groups may have tiny slices. Counted once for all groups, as a tenant may have many.
#[derive(Clone, Copy)]
struct TinyCounts {
    tiny: usize,
    unsliceable: usize,
    no_slices: bool,
}

impl TinyCounts {
    /// The counts without this group.
    fn without(self, group: &Group) -> Others {
        Others {
            tiny: self.tiny > usize::from(group.is_tiny()),
            unsliceable: self.unsliceable > usize::from(group.is_unsliceable()),
            no_slices: self.no_slices,
        }
    }
}
