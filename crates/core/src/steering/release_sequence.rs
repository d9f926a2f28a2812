//! In which order groups are set free by somebody who will not come back: a manager at its end, or whoever does it for a manager
//! that is no more.
//!
//! A group that stays stopped is lost to its owner, and two that run with slices below [`TINY_US`] keep each other from
//! working. So each is sliced and started before the next one, as the time may run out at any moment; one whose slice is not
//! feared is started first and sliced after that. A slice that cannot be set is no reason to leave a group stopped: what was
//! known of it before still holds. Groups that may have tiny slices all the same come last, and only one of them: none if
//! another such group may be running.

use super::control::Op;
use super::policy::{DEFAULT_US, TINY_US};

/// How often each control of a group is tried.
const TRIES: u8 = 2;

/// What is known of a group that is to be set free; `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// Its channels may run.
    pub enabled: Option<bool>,
    /// Its time slice, microseconds: the last one that it is known to have had.
    pub slice_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held<G> {
    group: G,
    known: Known,
    slices: u8,
    starts: u8,
}

impl<G> Held<G> {
    fn may_run(&self) -> bool {
        self.known.enabled != Some(false)
    }

    fn may_be_tiny(&self) -> bool {
        self.known.slice_us.is_none_or(|us| us < TINY_US)
    }

    fn is_free(&self) -> bool {
        self.known == Known { enabled: Some(true), slice_us: Some(DEFAULT_US) }
    }

    /// What to do about it if each control may be tried so often.
    fn step(&self, tries: u8) -> Option<Op> {
        let start = self.known.enabled != Some(true) && self.starts < tries;
        let slice = self.known.slice_us != Some(DEFAULT_US) && self.slices < tries;
        match (start, slice) {
            (true, _) if !self.may_be_tiny() => Some(Op::Start),
            (_, true) => Some(Op::SetSlice(DEFAULT_US)),
            _ => None,
        }
    }
}

/// Groups that are being set free, one control after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release<G> {
    held: Vec<Held<G>>,
    in_flight: Option<(usize, Op)>,
}

impl<G: Copy> Release<G> {
    /// These groups. Those that may be stopped are set free first.
    #[must_use]
    pub fn of(groups: impl IntoIterator<Item = (G, Known)>) -> Self {
        let held = groups.into_iter().map(|(group, known)| Held { group, known, slices: 0, starts: 0 });
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|held| held.known.enabled == Some(true));
        Self { held, in_flight: None }
    }

    /// The next control, [`Op::SetSlice`] or [`Op::Start`]; it is in flight from here on. `None` if nothing is left that could be
    /// done without harm, or one is in flight. Nothing has to be undone if it is not asked any more.
    pub fn begin(&mut self) -> Option<(G, Op)> {
        if self.in_flight.is_some() {
            return None;
        }
        let step = |tries| {
            let steps = self.held.iter().enumerate();
            steps.filter_map(|(index, held)| Some((index, held.step(tries)?))).next()
        };
        let (index, op) = (1..=TRIES).find_map(step).or_else(|| self.last_resort())?;
        self.in_flight = Some((index, op));
        Some((self.held[index].group, op))
    }

    /// The control in flight has ended. One that failed may have had its effect all the same.
    pub fn done(&mut self, succeeded: bool) {
        let Some((index, op)) = self.in_flight.take() else { return };
        let Some(held) = self.held.get_mut(index) else { return };
        match op {
            Op::SetSlice(us) => {
                held.slices += 1;
                // It is this one or still the one before: neither is to be feared unless that one was.
                held.known.slice_us = if succeeded { Some(us) } else { held.known.slice_us };
            }
            Op::Start | Op::Stop => {
                held.starts += 1;
                held.known.enabled = succeeded.then_some(op == Op::Start);
            }
        }
    }

    /// The groups that are known to run with the driver's own slice.
    pub fn free(&self) -> impl Iterator<Item = G> + '_ {
        self.held.iter().filter(|held| held.is_free()).map(|held| held.group)
    }

    /// Starts one whose slice cannot be helped, if no other one of that kind may be running.
    fn last_resort(&self) -> Option<(usize, Op)> {
        let feared = |held: &Held<G>| held.may_run() && held.may_be_tiny();
        let feared_ones = self.held.iter().filter(|held| feared(held)).count();
        let may_start = |held: &Held<G>| {
            let others = feared_ones - usize::from(feared(held));
            held.known.enabled != Some(true) && held.starts < TRIES && others == 0
        };
        self.held.iter().position(may_start).map(|index| (index, Op::Start))
    }
}
