//! The order in which groups are set free when no later control can correct them: by a manager that exits, or by the
//! node agent for a manager that has died.
//!
//! The time may run out at any moment, and two enabled groups with slices below [`TINY_SLICE_US`] prevent each other from making
//! progress: docs/design/channel-groups.md gives the order.

use super::control::ControlOp;
use super::policy::{DEFAULT_SLICE_US, TINY_SLICE_US};

/// How often each control of a group is tried.
const TRIES: u8 = 2;

/// The known setting of a group that is to be set free; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownSetting {
    /// Whether its channels may run.
    pub enabled: Option<bool>,
    /// The last time slice that it is known to have had, microseconds.
    pub slice_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<G> {
    group: G,
    known: KnownSetting,
    slices: u8,
    starts: u8,
}

impl<G> Entry<G> {
    fn may_run(&self) -> bool {
        self.known.enabled != Some(false)
    }

    fn may_be_tiny(&self) -> bool {
        self.known.slice_us.is_none_or(|us| us < TINY_SLICE_US)
    }

    fn is_free(&self) -> bool {
        self.known == KnownSetting { enabled: Some(true), slice_us: Some(DEFAULT_SLICE_US) }
    }

    /// The next control for the group, if each control may be tried so often.
    fn step(&self, tries: u8) -> Option<ControlOp> {
        let start = self.known.enabled != Some(true) && self.starts < tries;
        let slice = self.known.slice_us != Some(DEFAULT_SLICE_US) && self.slices < tries;
        match (start, slice) {
            (true, _) if !self.may_be_tiny() => Some(ControlOp::Enable),
            (_, true) => Some(ControlOp::SetSlice(DEFAULT_SLICE_US)),
            _ => None,
        }
    }
}

/// Groups that are being set free, one control after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseSequence<G> {
    entries: Vec<Entry<G>>,
    in_flight: Option<(usize, ControlOp)>,
}

impl<G: Copy> ReleaseSequence<G> {
    /// A sequence for these groups. Those that may be disabled are set free first.
    pub fn new(groups: impl IntoIterator<Item = (G, KnownSetting)>) -> Self {
        let entries = groups.into_iter().map(|(group, known)| Entry { group, known, slices: 0, starts: 0 });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| entry.known.enabled == Some(true));
        Self { entries, in_flight: None }
    }

    /// Begins the next control, [`ControlOp::SetSlice`] or [`ControlOp::Enable`]. `None` if no safe control is left, or one is in
    /// flight. The caller may stop at any point without undoing anything.
    pub fn begin(&mut self) -> Option<(G, ControlOp)> {
        if self.in_flight.is_some() {
            return None;
        }
        let step = |tries| {
            let steps = self.entries.iter().enumerate();
            steps.filter_map(|(index, entry)| Some((index, entry.step(tries)?))).next()
        };
        let (index, op) = (1..=TRIES).find_map(step).or_else(|| self.last_resort())?;
        self.in_flight = Some((index, op));
        Some((self.entries[index].group, op))
    }

    /// Records the result of the control in flight. A control that failed may have taken effect all the same.
    pub fn done(&mut self, succeeded: bool) {
        let Some((index, op)) = self.in_flight.take() else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        match op {
            ControlOp::SetSlice(us) => {
                entry.slices += 1;
                // After a failure the slice is the new one or the one before: it is tiny only if the one before was.
                entry.known.slice_us = if succeeded { Some(us) } else { entry.known.slice_us };
            }
            ControlOp::Enable | ControlOp::Disable => {
                entry.starts += 1;
                entry.known.enabled = succeeded.then_some(op == ControlOp::Enable);
            }
        }
    }

    /// The groups that are known to be enabled with the driver's default slice.
    pub fn free(&self) -> impl Iterator<Item = G> + '_ {
        self.entries.iter().filter(|entry| entry.is_free()).map(|entry| entry.group)
    }

    /// Enables one group whose slice cannot be set, if no other such group may be enabled.
    fn last_resort(&self) -> Option<(usize, ControlOp)> {
        let may_be_enabled_and_tiny = |entry: &Entry<G>| entry.may_run() && entry.may_be_tiny();
        let tiny_count = self.entries.iter().filter(|entry| may_be_enabled_and_tiny(entry)).count();
        let may_start = |entry: &Entry<G>| {
            let others = tiny_count - usize::from(may_be_enabled_and_tiny(entry));
            entry.known.enabled != Some(true) && entry.starts < TRIES && others == 0
        };
        self.entries.iter().position(may_start).map(|index| (index, ControlOp::Enable))
    }
}
