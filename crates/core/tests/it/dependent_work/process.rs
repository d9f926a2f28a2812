//! One process: its thread, its stream and its hook.

use super::Fault;
use super::programs::Step;
use super::stream::{Command, Head, Signals, Stream};
use super::tracker::{Phase, Report, Tracker};
use sluice_core::ProcessId;

/// What a process sends to the manager.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Requests,
    Returns(Report),
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    /// Index of its client.
    pub(super) client: usize,
    steps: Vec<Step>,
    next_step: usize,
    sleeps_until: Option<u64>,
    pub(super) stream: Stream,
    pub(super) tracker: Tracker,
}

impl Process {
    pub(super) fn new(id: ProcessId, client: usize, steps: Vec<Step>, fault: Fault) -> Self {
        Self {
            id,
            client,
            steps,
            next_step: 0,
            sleeps_until: None,
            stream: Stream::default(),
            tracker: Tracker::new(fault),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.next_step == self.steps.len() && self.stream.is_empty()
    }

    /// The thread waits for a grant, or is about to.
    fn waits_to_launch(&self) -> bool {
        matches!(self.steps.get(self.next_step), Some(Step::Launch(..)))
            && !self.tracker.commands.holds_launch_back()
    }

    /// Whether work of it waits that the hook takes for a running kernel.
    pub(super) fn waits_unnoticed(&self, signals: &Signals) -> bool {
        matches!(self.stream.head(signals), Head::Polls | Head::Waits { is_found: false })
    }

    /// When it acts next, if nothing but time changes.
    pub(super) fn next_event(&self) -> Option<u64> {
        let times = [self.sleeps_until, self.tracker.next_event(), self.tracker.commands.next_event()];
        times.into_iter().flatten().min()
    }

    /// Does all that it can do at `now`. Returns whether that was anything.
    pub(super) fn step(
        &mut self,
        now: u64,
        signals: &mut Signals,
        outbox: &mut Vec<(ProcessId, Message)>,
    ) -> bool {
        let mut changed = self.stream.end_commands(signals);
        while self.take_step(now, signals) {
            changed = true;
        }
        // If a launch waits, the request is sent together with the return.
        let (stepped, report) = self.tracker.step(now, &self.stream);
        outbox.extend(report.map(|report| (self.id, Message::Returns(report))));
        if self.waits_to_launch() && self.tracker.phase == Phase::Closed {
            self.tracker.phase = Phase::Requested;
            outbox.push((self.id, Message::Requests));
            changed = true;
        }
        changed | stepped
    }

    /// Takes the thread's next step. Returns `false` if the thread waits, or has ended.
    fn take_step(&mut self, now: u64, signals: &Signals) -> bool {
        let Some(step) = self.steps.get(self.next_step) else { return false };
        match *step {
            Step::Sleep(ns) => {
                if now < *self.sleeps_until.get_or_insert(now + ns) {
                    return false;
                }
                self.sleeps_until = None;
            }
            Step::Await(signal) => {
                if !signals.has(signal) {
                    return false;
                }
            }
            Step::StreamWait(signal) => {
                let is_found = self.tracker.begin_waiting_command(now, &self.stream);
                self.stream.submit(Command::Wait { signal, is_found });
            }
            Step::Launch(left_ns, polls) => {
                if !self.tracker.may_launch(now, &self.stream) {
                    return false;
                }
                self.tracker.launched(now);
                self.stream.submit(Command::Kernel { left_ns, polls });
            }
            Step::StreamSignal(item) => self.stream.submit(Command::Signal(item)),
            Step::Synchronize => {
                if !self.stream.is_empty() {
                    return false;
                }
                self.tracker.synchronized(now);
            }
        }
        self.next_step += 1;
        true
    }
}
