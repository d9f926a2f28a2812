//! From what the groups are to what they are to be, one control after the other.
//!
//! The invariant: at most one group that may be running may have a slice below [`TINY_US`](super::TINY_US). What is not
//! known counts as the worst: a group that was just announced, or one whose control failed, may be running and may have any
//! slice. Longer slices may always be set, and any group may always be stopped, so there is a way out of everything.

use super::control::{Control, GroupId, Op, Outcome, Setting};
use super::group::{Group, Others};
use std::collections::BTreeMap;

/// What a control that has ended has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The group runs from now on.
    Started(GroupId),
    /// The group does not run any more.
    Stopped(GroupId),
    /// Its slice is another.
    Sliced(GroupId),
    /// The control failed: how the group is, is not known.
    Failed(GroupId),
    /// There is no such group any more; it is forgotten.
    Gone(GroupId),
}

/// A group that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Which.
    pub group: GroupId,
    /// It is as the driver made it, or not there any more; if not, nothing more can be done from here.
    pub is_free: bool,
}

/// All groups of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reconciler {
    groups: BTreeMap<GroupId, Group>,
    in_flight: Option<Control>,
    /// Slices cannot be set: all groups have the driver's own.
    unsliced: bool,
}

impl Reconciler {
    /// Knows no groups. Sets no slices unless it can.
    #[must_use]
    pub fn new(slices: bool) -> Self {
        Self { unsliced: !slices, ..Self::default() }
    }

    /// A group that nothing is known of, or not any more. It is to be free until somebody wants something else. One that was
    /// being given back stays.
    pub fn add(&mut self, group: GroupId) {
        let in_flight = self.in_flight.is_some_and(|control| control.group == group);
        self.groups.entry(group).or_insert(Group::new()).announced(in_flight);
    }

    /// How a group is to be. Nothing if it is being given back, or unknown.
    pub fn want(&mut self, group: GroupId, setting: Setting) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.leaving) {
            group.want = setting;
        }
    }

    /// Gives a group back: it is made free, as far as possible, and appears in [`Self::take_released`].
    pub fn release(&mut self, group: GroupId) {
        if let Some(group) = self.groups.get_mut(&group).filter(|group| !group.leaving) {
            (group.want, group.leaving, group.frozen) = (Setting::FREE, true, false);
        }
    }

    /// Leaves a group as it is until something else is said of it.
    pub fn freeze(&mut self, group: GroupId) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.frozen = true;
        }
    }

    /// Forgets a group: its owner has gone.
    pub fn forget(&mut self, group: GroupId) {
        match self.groups.get_mut(&group) {
            Some(known) if self.in_flight.is_some_and(|control| control.group == group) => {
                known.gone = true;
            }
            _ => drop(self.groups.remove(&group)),
        }
    }

    /// The next control, if none is in flight and something is not as it is to be. It is in flight from here on.
    pub fn begin(&mut self) -> Option<Control> {
        self.in_flight = Some(self.look()?);
        self.in_flight
    }

    /// The control in flight has ended.
    pub fn done(&mut self, outcome: Outcome) -> Option<Change> {
        let Control { group: id, op } = self.in_flight.take()?;
        let group = self.groups.get_mut(&id)?;
        if group.gone || outcome == Outcome::Gone {
            let known = !group.gone;
            self.groups.remove(&id);
            return known.then_some(Change::Gone(id));
        }
        group.done(op, outcome);
        Some(match (outcome, op) {
            (Outcome::Gone, _) => Change::Gone(id),
            (Outcome::Failed, _) => Change::Failed(id),
            (Outcome::Done, Op::SetSlice(_)) => Change::Sliced(id),
            (Outcome::Done, Op::Stop) => Change::Stopped(id),
            (Outcome::Done, Op::Start) => Change::Started(id),
        })
    }

    /// The groups that were given back and are free, or cannot be made so. One that cannot is kept in mind until it is
    /// [forgotten](Self::forget), for it may be in the way of others.
    pub fn take_released(&mut self) -> Vec<Released> {
        let leaving = self.groups.iter().filter(|(_, group)| group.leaving && !group.told);
        let ids: Vec<GroupId> = leaving.map(|(id, _)| *id).collect();
        let mut released = Vec::new();
        for id in ids {
            let under_way = self.in_flight.is_some_and(|control| control.group == id);
            let feared = self.feared();
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let others = feared.but(group);
            // One that waits for others to get out of the way has something left to be done.
            let finished = group.step(Others { tiny: false, ..others }).is_none();
            if under_way || !finished {
                continue;
            }
            group.told = true;
            let is_free = group.is_free(others);
            released.push(Released { group: id, is_free });
            if is_free {
                self.groups.remove(&id);
            }
        }
        released
    }

    /// Whether a group may be running, as far as is known.
    #[must_use]
    pub fn may_run(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(Group::may_run)
    }

    /// The control in flight.
    #[must_use]
    pub const fn in_flight(&self) -> Option<Control> {
        self.in_flight
    }

    /// Whether every group is as it is to be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.look().is_none()
    }

    fn look(&self) -> Option<Control> {
        if self.in_flight.is_some() {
            return None;
        }
        let feared = self.feared();
        let steps = self.groups.iter().filter(|(_, group)| !group.gone).filter_map(|(id, group)| {
            let (urgency, op) = group.step(feared.but(group))?;
            Some((urgency, Control { group: *id, op }))
        });
        // Of several that are as urgent the oldest goes first.
        steps.min_by_key(|(urgency, _)| *urgency).map(|(_, control)| control)
    }

    fn feared(&self) -> Feared {
        let count = |which: fn(&Group) -> bool| self.groups.values().filter(|group| which(group)).count();
        let (tiny, for_ever) = (count(Group::is_tiny), count(Group::is_tiny_for_ever));
        Feared { tiny, for_ever, unsliced: self.unsliced }
    }
}

/// How many groups may have tiny slices: counted once for all of them, as a tenant may have many.
#[derive(Clone, Copy)]
struct Feared {
    tiny: usize,
    for_ever: usize,
    unsliced: bool,
}

impl Feared {
    /// Whether any but this one does.
    fn but(self, group: &Group) -> Others {
        Others {
            tiny: self.tiny > usize::from(group.is_tiny()),
            for_ever: self.for_ever > usize::from(group.is_tiny_for_ever()),
            unsliced: self.unsliced,
        }
    }
}
