//! Brings the groups from their known settings to the wanted ones, one control after the other.
//!
//! The invariant: at most one group that may be enabled may have a slice below [`TINY_SLICE_US`](super::TINY_SLICE_US). An unknown
//! setting counts as the worst case: a group that was just announced, or whose control failed, may be enabled with any
//! slice. A longer slice may always be set and any group may always be disabled, so that every state can be left.

use super::control::{Control, ControlOutcome, GroupId, Setting};
use super::group::{Group, Others};
use std::collections::BTreeMap;

/// A group that was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The group.
    pub group: GroupId,
    /// It has the driver's default setting, or does not exist any more. If false, no control can set it free.
    pub is_free: bool,
}

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

    /// Releases a group: it is set free as far as possible and then appears in [`Self::take_released`].
    pub fn release(&mut self, group: GroupId) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.releasing) {
            (group.want, group.releasing, group.frozen_until) = (Setting::FREE, true, None);
        }
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
    pub fn done(&mut self, outcome: ControlOutcome) -> Option<Control> {
        let control = self.in_flight.take()?;
        let group = self.groups.get_mut(&control.group)?;
        let owner_gone = group.owner_gone;
        if owner_gone || outcome == ControlOutcome::Gone {
            self.groups.remove(&control.group);
        } else {
            group.done(control.op, outcome);
        }
        (!owner_gone).then_some(control)
    }

    /// The released groups that are free, or cannot be set free. One that cannot is kept until it is
    /// [forgotten](Self::forget), because it may limit the slices of others.
    pub fn take_released(&mut self) -> Vec<Released> {
        let releasing = self.groups.iter().filter(|(_, group)| group.releasing && !group.release_reported);
        let ids: Vec<GroupId> = releasing.map(|(id, _)| *id).collect();
        let mut released = Vec::new();
        for id in ids {
            let in_flight = self.in_flight.is_some_and(|control| control.group == id);
            let tiny_counts = self.tiny_counts();
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let others = tiny_counts.without(group);
            // A group that waits for another one's slice has a control left, unless that slice cannot be set.
            let finished = group.step(Others { tiny: others.permanent, ..others }).is_none();
            if in_flight || !finished {
                continue;
            }
            group.release_reported = true;
            let is_free = group.is_free(others);
            released.push(Released { group: id, is_free });
            if is_free {
                self.groups.remove(&id);
            }
        }
        released
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
        let (tiny, permanent) = (count(Group::is_tiny), count(Group::is_permanently_tiny));
        TinyCounts { tiny, permanent, no_slices: self.no_slices }
    }
}

/// How many groups may have tiny slices. Counted once for all groups, as a tenant may have many.
#[derive(Clone, Copy)]
struct TinyCounts {
    tiny: usize,
    permanent: usize,
    no_slices: bool,
}

impl TinyCounts {
    /// The counts without this group.
    fn without(self, group: &Group) -> Others {
        Others {
            tiny: self.tiny > usize::from(group.is_tiny()),
            permanent: self.permanent > usize::from(group.is_permanently_tiny()),
            no_slices: self.no_slices,
        }
    }
}
