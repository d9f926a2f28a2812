//! One channel group: how it is to be, what is known of how it is, and what to do about that.

use super::control::{Op, Outcome, Setting};
use super::policy::{DEFAULT_US, TINY_US};

/// How often each operation is tried on a group that is being given back.
const TRIES: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) want: Setting,
    /// `None`: not known.
    enabled: Option<bool>,
    slice_us: Option<u64>,
    /// It is being given back: free, then forgotten.
    pub(super) leaving: bool,
    /// It is left as it is.
    pub(super) frozen: bool,
    /// Its owner has gone: forgotten as soon as no control of it is in flight.
    pub(super) gone: bool,
    /// It has been said that it was given back.
    pub(super) told: bool,
    /// It was announced anew while a control of it was in flight: what that has done is not known.
    pub(super) anew: bool,
    /// Its slice could be set at least once.
    sliced: bool,
    /// Failures since it is leaving.
    slice_failures: u8,
    run_failures: u8,
}

/// What the other groups mean for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    /// One of them may be running with a tiny slice.
    pub(super) tiny: bool,
    /// One of them will for ever, or will want to.
    pub(super) for_ever: bool,
    /// No group is given a slice, nor was any.
    pub(super) unsliced: bool,
}

/// What to do about a group, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Nothing is known of it: it is made harmless.
    Unknown,
    /// It is to stop.
    Stop,
    /// It runs with another slice than it is to have.
    Running,
    /// It is to run.
    Start,
    /// It does not run and has another slice than it is to have.
    Later,
}

impl Group {
    pub(super) const fn new() -> Self {
        Self {
            want: Setting::FREE,
            enabled: None,
            slice_us: None,
            leaving: false,
            frozen: false,
            gone: false,
            told: false,
            anew: false,
            sliced: false,
            slice_failures: 0,
            run_failures: 0,
        }
    }

    pub(super) fn may_run(&self) -> bool {
        self.enabled != Some(false)
    }

    pub(super) fn is_tiny(&self) -> bool {
        self.may_run() && self.may_be_tiny()
    }

    /// Its slice cannot be helped, and it runs or is to run.
    pub(super) fn is_tiny_for_ever(&self) -> bool {
        self.slice_failures >= TRIES && self.may_be_tiny() && (self.may_run() || self.run_failures < TRIES)
    }

    /// It is as the driver made it.
    pub(super) fn is_free(&self, others: Others) -> bool {
        self.enabled == Some(true) && (others.unsliced || self.slice_us == Some(DEFAULT_US))
    }

    /// It is under control from now on, and how it is, is not known any more.
    pub(super) fn announced(&mut self, in_flight: bool) {
        (self.leaving, self.frozen, self.gone, self.told) = (false, false, false, false);
        (self.slice_failures, self.run_failures) = (0, 0);
        self.anew = in_flight;
        self.doubt();
    }

    fn doubt(&mut self) {
        (self.enabled, self.slice_us) = (None, None);
    }

    /// The first slice that is set is a harmless one, so a group that was never given any cannot have a tiny one: who
    /// announces a group that does not exist lengthens nobody's slices.
    fn may_be_tiny(&self) -> bool {
        self.slice_us.map_or(self.sliced, |us| us < TINY_US)
    }

    /// What to do next.
    pub(super) fn step(&self, others: Others) -> Option<(Urgency, Op)> {
        if self.frozen {
            return None;
        }
        let Setting { enabled, slice_us } = self.want;
        let harmless = others.for_ever || !self.sliced;
        let slice_us = if harmless { slice_us.max(TINY_US) } else { slice_us };
        let sliced = others.unsliced || self.slice_us == Some(slice_us) || self.slice_failures >= TRIES;
        let runs_as_wanted = self.enabled == Some(enabled) || self.run_failures >= TRIES;
        if !enabled && !runs_as_wanted {
            return Some((Urgency::Stop, Op::Stop));
        }
        if !sliced && self.may_run() {
            // Not before the others have stopped; what is not known is made harmless meanwhile.
            return match slice_us < TINY_US && others.tiny {
                true if self.slice_us.is_none() => Some((Urgency::Unknown, Op::SetSlice(DEFAULT_US))),
                true => None,
                false => Some((Urgency::Running, Op::SetSlice(slice_us))),
            };
        }
        if !sliced {
            let urgency = if enabled { Urgency::Start } else { Urgency::Later };
            return Some((urgency, Op::SetSlice(slice_us)));
        }
        let safe = !self.may_be_tiny() || !others.tiny;
        (enabled && !runs_as_wanted && safe).then_some((Urgency::Start, Op::Start))
    }

    /// A control has ended.
    pub(super) fn done(&mut self, op: Op, outcome: Outcome) {
        let failed = outcome == Outcome::Failed;
        match op {
            Op::SetSlice(us) => {
                self.slice_us = (!failed).then_some(us);
                self.sliced |= !failed;
            }
            Op::Stop => self.enabled = (!failed).then_some(false),
            Op::Start => self.enabled = (!failed).then_some(true),
        }
        if failed && self.leaving {
            match op {
                Op::SetSlice(_) => self.slice_failures += 1,
                Op::Stop | Op::Start => self.run_failures += 1,
            }
        }
        if std::mem::take(&mut self.anew) {
            self.doubt();
        }
    }
}
