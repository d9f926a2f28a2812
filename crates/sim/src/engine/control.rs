//! Controls of a context's channel group, applied now or at a later time.

use super::{Access, Engine, GroupId, OwnerId, Switches};
use crate::ledger::{GroupLedger, Ledger};
use std::collections::BTreeMap;

/// A change of a context's channel group by the resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Sets its time slice, in nanoseconds.
    Timeslice(u64),
    /// Sets whether it may run.
    Access(Access),
    /// Ends its slice.
    Preempt,
}

#[derive(Debug, Default)]
pub(super) struct Controls {
    due: BTreeMap<(u64, u64), (GroupId, Control)>,
    count: u64,
}

impl Controls {
    pub(super) fn next_event(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Engine {
    /// Applies a control to a context at a time; at once if the timeline has passed that time. Controls take
    /// effect in the order of their times, and in the order of the calls where times are equal.
    pub fn control_at(&mut self, at_ns: u64, group: GroupId, control: Control) {
        if at_ns <= self.now {
            self.control(group, control);
        } else {
            self.controls.count += 1;
            self.controls.due.insert((at_ns, self.controls.count), (group, control));
        }
    }

    /// Applies a control to a context now.
    pub fn control(&mut self, group: GroupId, control: Control) {
        match control {
            Control::Timeslice(ns) => self.runlist.set_timeslice(group, ns),
            Control::Access(access) => {
                if let Some(group) = self.runlist.groups.get_mut(&group) {
                    group.access = access;
                    if access == Access::Enabled {
                        self.to_check.extend(group.suspended.drain(..));
                    }
                }
            }
            Control::Preempt => {
                if self.runlist.preempt(group, self.now).switched {
                    self.account.switched();
                }
            }
        }
        self.settle();
    }

    pub(super) fn control_due(&mut self) {
        while let Some(first) = self.controls.due.first_entry().filter(|first| first.key().0 <= self.now) {
            let (group, control) = first.remove();
            self.control(group, control);
        }
    }

    /// Marks a process as ended. Its row is kept, and its memory until it is released.
    pub fn end(&mut self, owner: OwnerId) {
        self.account.end(owner);
        self.words.forget(owner);
    }

    /// The counts of a context's switches; `None` if there is no such context.
    pub fn switches(&self, group: GroupId) -> Option<Switches> {
        self.runlist.groups.get(&group).map(|group| group.switches)
    }

    /// Whether a context's kernels are on the multiprocessors.
    pub fn is_on(&self, group: GroupId) -> bool {
        self.runlist.is_on(group)
    }

    /// A copy of all counters, and the present state of the contexts.
    pub fn ledger(&self) -> Ledger {
        let row = |(id, group): (&GroupId, &super::Group)| GroupLedger {
            group: id.0,
            pid: self.account.pid(group.owner),
            timeslice_ns: group.timeslice_ns,
            is_enabled: group.access == Access::Enabled,
            saves: group.switches.saves,
        };
        Ledger { groups: self.runlist.groups.iter().map(row).collect(), ..self.account.ledger() }
    }
}
