//! The driver: one control at a time, each with the measured latency, and the settings of the channel groups on the GPU.

use sluice_core::channel_groups::{Control, ControlOp, ControlOutcome, GroupId, Setting, TINY_SLICE_US};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A control in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    control: Control,
    takes_effect_at: u64,
    effective: bool,
    done_at: u64,
    fails: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    /// The setting that each group has on the GPU.
    pub(crate) groups: BTreeMap<GroupId, Setting>,
    flight: Option<Flight>,
    /// Controls that begin before this time fail without effect.
    pub(crate) fails_until: u64,
    /// Until when the driver is locked by controls. GPUs of one node share it.
    lock: Lock,
}

/// The end of the last control of the driver.
pub(crate) type Lock = Rc<Cell<u64>>;

impl Driver {
    /// A process has created a group.
    pub(crate) fn create(&mut self, group: GroupId) {
        self.groups.insert(group, Setting::FREE);
    }

    /// The controls of another GPU wait for those of this one, and the other way round.
    pub(crate) fn share_lock(&mut self, lock: &Lock) {
        self.lock = Rc::clone(lock);
    }

    pub(crate) fn is_enabled(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|setting| setting.enabled)
    }

    pub(crate) fn begin(&mut self, control: Control, now: u64) {
        let cost_ns = match control.op {
            ControlOp::SetSlice(_) => 330_000,
            ControlOp::Disable => 765_000,
            ControlOp::Enable => 260_000,
        };
        let begins_at = self.lock.get().max(now);
        self.lock.set(begins_at + cost_ns);
        // The group runs on during 85 % of the control that disables it.
        self.flight = Some(Flight {
            control,
            takes_effect_at: begins_at + cost_ns * 85 / 100,
            effective: false,
            done_at: begins_at + cost_ns,
            fails: now < self.fails_until,
        });
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        self.flight.map(|flight| if flight.effective { flight.done_at } else { flight.takes_effect_at })
    }

    /// Carries out the control in flight as far as it is due. Returns its outcome when it has ended.
    pub(crate) fn advance(&mut self, now: u64) -> Option<ControlOutcome> {
        let flight = self.flight.as_mut()?;
        let Control { group, op } = flight.control;
        if now >= flight.takes_effect_at && !flight.effective {
            flight.effective = true;
            if let Some(setting) = self.groups.get_mut(&group).filter(|_| !flight.fails) {
                match op {
                    ControlOp::SetSlice(us) => setting.slice_us = us,
                    ControlOp::Disable => setting.enabled = false,
                    ControlOp::Enable => setting.enabled = true,
                }
            }
            self.check();
        }
        if now < self.flight?.done_at {
            return None;
        }
        let flight = self.flight.take()?;
        Some(match (self.groups.contains_key(&group), flight.fails) {
            (false, _) => ControlOutcome::Gone,
            (true, true) => ControlOutcome::Failed,
            (true, false) => ControlOutcome::Done,
        })
    }

    /// Two enabled groups with tiny slices would prevent each other from making progress.
    pub(crate) fn check(&self) {
        let tiny = self.groups.values().filter(|setting| setting.enabled && setting.slice_us < TINY_SLICE_US);
        assert!(tiny.count() <= 1, "several enabled groups have tiny slices: {:?}", self.groups);
    }
}
