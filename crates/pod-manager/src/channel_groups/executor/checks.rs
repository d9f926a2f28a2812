//! The control executor compares counts of switches and time slices with what it has set.
//!
//! A group may be known under two numbers: while controls of a process fail, a child that has its file open has its groups under control too.
//! What the manager does to a group under one number is no violation under the other one.

use super::super::group_check::{compare_slice, next_in_turn};
use super::{ControlledGroup, Worker};
use sluice_core::channel_groups::{ControlOp, GroupId};
use sluice_core::processes::{Checks, covers};
use std::time::{Duration, Instant};

/// Less than the time between two checks that are due.
pub(super) const LEAST_BETWEEN_CHECKS: Duration = Duration::from_millis(250);

impl Worker {
    pub(super) fn check(&mut self, alternating: &[GroupId]) {
        // The event loop has begun another interval.
        let before = std::mem::take(&mut self.alternating);
        if self.checked.is_some_and(|checked| checked.elapsed() < LEAST_BETWEEN_CHECKS) {
            return;
        }
        for id in alternating {
            self.count_switches(*id, before.get(id).copied());
        }
        self.check_all();
        self.checked = Some(Instant::now());
    }

    /// Reports how often a group was switched out since its count was `before`.
    fn count_switches(&mut self, id: GroupId, before: Option<u32>) {
        let Some(group) = self.groups.get(&id) else { return };
        let Some(control) = self.descriptors.get_mut(&group.descriptor) else { return };
        let Some(count) = control.switches(&group.handles) else { return };
        self.alternating.insert(id, count);
        if let Some(before) = before {
            self.switches.send((id, count.wrapping_sub(before)));
        }
    }

    fn check_all(&mut self) {
        self.checks += 1;
        for id in self.disabled.watched() {
            self.compare_switches(id);
        }
        let has_set_slice = |group: &ControlledGroup| self.sets_slices && group.known.slice_us.is_some();
        let ids = self.groups.iter().filter(|(_, group)| has_set_slice(group)).map(|(id, _)| *id);
        for id in next_in_turn(ids, self.last_slice_read) {
            self.last_slice_read = id;
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let control = self.descriptors.get_mut(&group.descriptor);
            let (Some(control), Some(set_us)) = (control, group.known.slice_us) else { continue };
            let checks = Checks { current: self.checks, before: group.slice_read_in };
            let Some(found_us) = control.slice_us(&group.handles) else { continue };
            group.slice_read_in = self.checks;
            let finding = compare_slice(id, found_us, set_us, checks);
            if let Some(finding) = finding {
                // A failed control leaves the slice unknown, as it is.
                let _ = control.make(&group.handles, ControlOp::SetSlice(set_us));
                let has_set = |other: &ControlledGroup| other.known.slice_us == Some(found_us);
                if !self.under_other_numbers(id).any(has_set) {
                    self.findings.send(finding);
                }
            }
        }
    }

    /// A group as other numbers know it, with all of its channels.
    fn under_other_numbers(&self, id: GroupId) -> impl Iterator<Item = &ControlledGroup> {
        let others = self.groups.iter().filter(move |(other, _)| **other != id).map(|(_, other)| other);
        let group = self.groups.get(&id);
        others.filter(move |other| group.is_some_and(|group| covers(&other.handles, &group.handles)))
    }

    /// A group is about to be enabled, so it is not watched from here on.
    pub(super) fn end_watch(&mut self, enabled: GroupId) {
        let Some(group) = self.groups.get(&enabled) else { return };
        let is_same = |watched: &GroupId| {
            self.groups.get(watched).is_some_and(|watched| covers(&group.handles, &watched.handles))
        };
        let watched: Vec<GroupId> = self.disabled.watched().into_iter().filter(is_same).collect();
        for id in watched {
            self.compare_switches(id);
            self.disabled.forget(id, false);
        }
    }

    /// Reports a disabled group that has run.
    fn compare_switches(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let Some(control) = self.descriptors.get_mut(&group.descriptor) else { return };
        let finding = control.switches(&group.handles).and_then(|count| self.disabled.compare(id, count));
        if let Some(finding) = finding {
            self.findings.send(finding);
        }
    }
}
