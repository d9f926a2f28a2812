//! One channel group: its wanted setting, its known setting, and the next control that brings them together.

use super::control::{ControlOp, ControlOutcome, Setting};
use super::failures::Failures;
use super::policy::{DEFAULT_SLICE_US, TINY_SLICE_US};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) want: Setting,
    /// `None`: unknown.
    enabled: Option<bool>,
    slice_us: Option<u64>,
    /// It is being released: set to [`Setting::FREE`], then removed.
    pub(super) releasing: bool,
    /// Its process has disconnected: no control is made for it, and it is released at this time.
    pub(super) frozen_until: Option<u64>,
    /// Its owner has ended: removed as soon as no control of it is in flight.
    pub(super) owner_gone: bool,
    /// It was announced again while a control of it was in flight, so that the effect of that control is unknown.
    pub(super) reannounced: bool,
    /// Its slice was set at least once.
    slice_was_set: bool,
    pub(super) failures: Failures,
}

/// Facts about the other groups that matter for one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    /// One of them may be enabled with a tiny slice.
    pub(super) tiny: bool,
    /// One of them may keep a tiny slice because its slice cannot be set.
    pub(super) unsliceable: bool,
    /// Slices are not set and never were.
    pub(super) no_slices: bool,
}

/// Urgency of a control, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// The group's setting is unknown: a safe slice is set.
    Unknown,
    /// The group is to be disabled.
    Stop,
    /// The group is enabled with another slice than the wanted one.
    Running,
    /// The group is to be enabled.
    Start,
    /// The group is disabled and has another slice than the wanted one.
    Later,
}

impl Group {
    pub(super) const fn new() -> Self {
        Self {
            want: Setting::FREE,
            enabled: None,
            slice_us: None,
            releasing: false,
            frozen_until: None,
            owner_gone: false,
            reannounced: false,
            slice_was_set: false,
            failures: Failures::none(),
        }
    }

    pub(super) fn may_run(&self) -> bool {
        self.enabled != Some(false)
    }

    pub(super) fn is_tiny(&self) -> bool {
        self.may_run() && self.may_be_tiny()
    }

    /// It may have a tiny slice, which could not be changed: others have safe slices, so that it can be enabled.
    pub(super) fn is_unsliceable(&self) -> bool {
        self.failures.slice_failed() && self.may_be_tiny()
    }

    /// It has the setting that the driver gives to a new group.
    pub(super) fn is_free(&self, no_slices: bool) -> bool {
        self.enabled == Some(true) && (no_slices || self.slice_us == Some(DEFAULT_SLICE_US))
    }

    /// It was announced: it is under control from now on, and its setting is unknown.
    pub(super) fn announced(&mut self, in_flight: bool) {
        (self.releasing, self.owner_gone, self.frozen_until) = (false, false, None);
        self.failures.restart();
        self.reannounced = in_flight;
        self.clear_known();
    }

    fn clear_known(&mut self) {
        (self.enabled, self.slice_us) = (None, None);
    }

    /// The first slice that is set is a safe one, so a group whose slice was never set has no tiny one. Therefore
    /// announcing a group that does not exist does not lengthen the slices of other clients.
    fn may_be_tiny(&self) -> bool {
        self.slice_us.map_or(self.slice_was_set, |us| us < TINY_SLICE_US)
    }

    /// The next control for this group.
    pub(super) fn step(&self, others: Others) -> Option<(Urgency, ControlOp)> {
        if self.frozen_until.is_some() {
            return None;
        }
        let Setting { enabled, slice_us } = self.want;
        let safe_only = others.unsliceable || !self.slice_was_set;
        let slice_us = if safe_only { slice_us.max(TINY_SLICE_US) } else { slice_us };
        let slice_done = others.no_slices || self.slice_us == Some(slice_us) || self.failures.slice_waits();
        let enabled_done = self.enabled == Some(enabled) || self.failures.run_waits();
        if !enabled && !enabled_done {
            return Some((Urgency::Stop, ControlOp::Disable));
        }
        if !slice_done && self.may_run() {
            // A tiny slice waits until no other group has one. Until then an unknown slice is replaced by a safe one.
            return match slice_us < TINY_SLICE_US && others.tiny {
                true if self.slice_us.is_none() => {
                    Some((Urgency::Unknown, ControlOp::SetSlice(DEFAULT_SLICE_US)))
                }
                true => None,
                false => Some((Urgency::Running, ControlOp::SetSlice(slice_us))),
            };
        }
        if !slice_done {
            let urgency = if enabled { Urgency::Start } else { Urgency::Later };
            return Some((urgency, ControlOp::SetSlice(slice_us)));
        }
        let safe = !self.may_be_tiny() || !others.tiny;
        (enabled && !enabled_done && safe).then_some((Urgency::Start, ControlOp::Enable))
    }

    /// Records the result of a control.
    pub(super) fn done(&mut self, op: ControlOp, outcome: ControlOutcome, now: u64) {
        let failed = outcome == ControlOutcome::Failed;
        match op {
            ControlOp::SetSlice(us) => {
                self.slice_us = (!failed).then_some(us);
                self.slice_was_set |= !failed;
            }
            ControlOp::Disable => self.enabled = (!failed).then_some(false),
            ControlOp::Enable => self.enabled = (!failed).then_some(true),
        }
        self.failures.record(op, !failed, now);
        if std::mem::take(&mut self.reannounced) {
            self.clear_known();
        }
    }
}
