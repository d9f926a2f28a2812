//! The steps of hand-offs: how long after the step before it each of them comes, and how often the threads polled.

use std::io::{self, Write};

use serde::Serialize;
use sluice_comm::HandOffStep::{self, LaunchPolls, ManagerPolls, TrackerPolls};
use sluice_load::samples::{Quantiles, Samples};

/// A drain that begins earlier before the refused launch belongs to another grant.
const EARLIEST_NS: u64 = 5_000_000;
const COUNT: usize = HandOffStep::ALL.len();

/// What is recorded of the steps of several hand-offs.
#[derive(Debug, Default)]
pub(super) struct Steps {
    hand_offs: usize,
    /// Time since the step before, of each step.
    after_ns: [Vec<u64>; COUNT],
    /// From the last step to the launch's return.
    launch_ns: Vec<u64>,
    /// From the begin of the drain to the launch's return.
    whole_ns: Vec<u64>,
    polled: [usize; 3],
}

/// A step, and the time since the step before.
#[derive(Debug, Serialize)]
pub(super) struct StepFigures {
    step: String,
    us: Quantiles,
}

/// Figures of all steps.
#[derive(Debug, Serialize)]
pub(super) struct StepsFigures {
    /// Parts of the hand-offs during which the holder's tracker, the manager and the waiting launch polled.
    polled: [f64; 3],
    /// The first of them is the time from the refused launch to the begin of the drain; 0 if the drain began before.
    steps: Vec<StepFigures>,
    /// From the begin of the drain to the return of the next client's launch: includes the end of work that was running at the deadline.
    from_drain_us: Quantiles,
}

impl Steps {
    /// Adds a hand-off from the refused launch to the return of the next client's.
    pub(super) fn add(&mut self, recorded: &[(u8, u64)], (begin, end): (u64, u64)) {
        let last = |step: HandOffStep, from: u64| {
            let its = recorded.iter().filter(|(of, at)| *of == step as u8 && (from..=end).contains(at));
            its.map(|(_, at)| *at).max()
        };
        let from = begin.saturating_sub(EARLIEST_NS);
        let Some(drain) = last(HandOffStep::DrainBegun, from) else { return };
        let mut before = begin.min(drain);
        for (step, after) in HandOffStep::ALL.into_iter().zip(&mut self.after_ns) {
            if let Some(at) = last(step, drain) {
                after.push(at.saturating_sub(before));
                before = at;
            }
        }
        self.launch_ns.push(end.saturating_sub(before));
        self.whole_ns.push(end - drain);
        self.hand_offs += 1;
        for (step, polled) in [TrackerPolls, ManagerPolls, LaunchPolls].into_iter().zip(&mut self.polled) {
            *polled += usize::from(last(step, from).is_some());
        }
    }

    pub(super) fn figures(self) -> Option<StepsFigures> {
        let quantiles = |ns: Vec<u64>| ns.into_iter().collect::<Samples>().quantiles();
        let figures = |step, ns: Vec<u64>| StepFigures { step, us: quantiles(ns) };
        let hand_offs = self.hand_offs;
        let named = HandOffStep::ALL.into_iter().zip(self.after_ns).filter(|(_, ns)| !ns.is_empty());
        let steps = named.map(|(step, ns)| figures(format!("{step:?}"), ns));
        (hand_offs > 0).then(|| StepsFigures {
            polled: self.polled.map(|count| count as f64 / hand_offs as f64),
            steps: steps.chain([figures("LaunchReturned".to_owned(), self.launch_ns)]).collect(),
            from_drain_us: quantiles(self.whole_ns),
        })
    }
}

impl StepsFigures {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let [tracker, manager, launch] = self.polled.map(|part| 100.0 * part);
        writeln!(out, "    polled: tracker {tracker:.0} %, manager {manager:.0} %, launch {launch:.0} %")?;
        for StepFigures { step, us } in &self.steps {
            writeln!(out, "    {step:18} {:8.1} {:8.1} {:8.1}", us.p50, us.p99, us.max)?;
        }
        let us = self.from_drain_us;
        writeln!(out, "    {:18} {:8.1} {:8.1} {:8.1}", "from the drain on", us.p50, us.p99, us.max)
    }
}
