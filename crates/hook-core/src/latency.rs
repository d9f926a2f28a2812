//! How long the steps and requests of a latency-critical process take.
//!
//! ```text
//!  thread     copy  launch ── wait ┐ gap  launch ── wait ┐ long gap    copy  launch ── wait ┐
//!  step       ├────────────────────┤      ├──────────────┤             ├────────────────────┤
//!  request    ├──────────────────────────────────────────┤             ├────────────────────┤
//! ```
//! A *step* is the time from a thread's first call after its last wait to the end of its next wait. Steps with shorter gaps than
//! `REQUEST_GAP_NS` are one *request*. Each thread that submits work has steps of its own, because a process may serve several requests at
//! once. A wait of a thread without a step ends the oldest step: some programs submit in one thread and wait in another.
//!
//! A step is reported when the next call of its thread, or the tracker, finds that no other wait followed. Pure: the caller passes the
//! times, which it has read for other purposes, and the lock.

use crate::burst_admission::REQUEST_GAP_NS;

/// Threads whose steps are measured at the same time.
const THREADS: usize = 16;

/// If the GPU has been idle for this time and no wait has followed, the program does not wait for the step. Longer than a pause of the
/// program within a step, such as a garbage collection.
const UNAWAITED_NS: u64 = 100_000_000;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// A step took so many nanoseconds.
    Step(u64),
    /// A request took so many nanoseconds.
    Request(u64),
    /// A step has no latency: no wait for its end was observed, or too many threads submit work.
    Unobserved,
}

impl Measured {
    /// Whether a request took longer than the client's latency goal, in nanoseconds. `None` for other measurements, and without a goal (0).
    #[must_use]
    pub fn misses(self, goal_ns: u64) -> Option<bool> {
        match self {
            Self::Request(ns) if goal_ns > 0 => Some(ns > goal_ns),
            _ => None,
        }
    }
}

/// How sure it is that a wait is the end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// The host waited for work.
    Waited,
    /// The program polled for work and found it finished at once, or a copy to the GPU has returned. If the thread continues, the step
    /// does.
    Passed {
        /// The program has made calls since the last such end.
        after_calls: bool,
    },
}

/// A call that may begin a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A launch, or a command in a stream.
    Work,
    /// A copy to the GPU that returns when it is done. By itself it is no step.
    Copy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    /// The thread has made no call since the last step was reported.
    #[default]
    None,
    Open {
        began_ns: u64,
        /// The thread has submitted work, and a thread of the program may wait for it.
        has_work: bool,
        /// When a [`StepEnd::Passed`] ended the calls so far.
        passed_ns: Option<u64>,
        /// When the tracker found the GPU idle after the last known call.
        idle_ns: Option<u64>,
    },
    Ended {
        began_ns: u64,
        ended_ns: u64,
    },
}

/// The first step's begin and the last step's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    began_ns: u64,
    ended_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct ThreadSteps {
    thread: u32,
    step: Step,
    /// The steps that were reported.
    request: Option<Span>,
}

/// The steps and requests of one device.
#[derive(Debug, Default)]
pub struct LatencyMeter {
    threads: [ThreadSteps; THREADS],
}

impl LatencyMeter {
    /// Records a call of `thread` that began at `began_ns`.
    pub fn called(&mut self, thread: u32, kind: CallKind, began_ns: u64, report: &mut impl FnMut(Measured)) {
        let is_own = |steps: &ThreadSteps| steps.thread == thread;
        let is_free = |steps: &ThreadSteps| steps.step == Step::None && steps.request.is_none();
        let position = self.threads.iter().position(is_own).or_else(|| self.threads.iter().position(is_free));
        let Some(steps) = position.and_then(|position| self.threads.get_mut(position)) else {
            return report(Measured::Unobserved);
        };
        steps.thread = thread;
        steps.settle(began_ns, report);
        let is_work = kind == CallKind::Work;
        steps.step = match steps.step {
            Step::Open { began_ns, has_work, .. } => {
                Step::Open { began_ns, has_work: has_work || is_work, passed_ns: None, idle_ns: None }
            }
            Step::Ended { began_ns: first_ns, ended_ns } => {
                steps.end_step(first_ns, ended_ns, report);
                // A call is not earlier than the wait before it.
                let began_ns = began_ns.max(ended_ns);
                Step::Open { began_ns, has_work: is_work, passed_ns: None, idle_ns: None }
            }
            Step::None => Step::Open { began_ns, has_work: is_work, passed_ns: None, idle_ns: None },
        };
    }

    /// Records the end of a wait of `thread` that lasted from `begun_ns` to `now_ns`. Returns the thread whose step it may have ended: the
    /// next call of that thread has to be recorded.
    pub fn waited(&mut self, thread: u32, end: StepEnd, (begun_ns, now_ns): (u64, u64)) -> Option<u32> {
        let own = |steps: &ThreadSteps| steps.thread == thread && steps.is_concerned(begun_ns);
        let position = self.threads.iter().position(own).or_else(|| self.oldest_open())?;
        let steps = self.threads.get_mut(position)?;
        match &mut steps.step {
            Step::Open { began_ns, has_work: true, .. } if end == StepEnd::Waited => {
                steps.step = Step::Ended { began_ns: *began_ns, ended_ns: now_ns };
            }
            Step::Open { passed_ns, .. } => {
                // The first one after the last call: a program may poll for ever.
                let is_first = passed_ns.is_none() || end == StepEnd::Passed { after_calls: true };
                if is_first {
                    *passed_ns = Some(now_ns);
                }
            }
            // The program waits for a second stream, or copies the result.
            Step::Ended { ended_ns, .. } if end == StepEnd::Waited => *ended_ns = now_ns,
            Step::Ended { .. } | Step::None => return None,
        }
        Some(steps.thread)
    }

    fn oldest_open(&self) -> Option<usize> {
        let began = |steps: &ThreadSteps| match steps.step {
            Step::Open { began_ns, has_work: true, .. } => Some(began_ns),
            _ => None,
        };
        let open = self.threads.iter().enumerate().filter_map(|(at, steps)| Some((began(steps)?, at)));
        open.min().map(|(_, at)| at)
    }

    /// Records that the tracker found the GPU idle.
    pub fn found_idle(&mut self, now_ns: u64) {
        for steps in &mut self.threads {
            if let Step::Open { idle_ns, .. } = &mut steps.step {
                idle_ns.get_or_insert(now_ns);
            }
        }
    }

    /// Reports what is over at `now_ns`. `is_busy`: the GPU has work, or a thread waits. Then an open step goes on.
    pub fn expire(&mut self, now_ns: u64, is_busy: bool, report: &mut impl FnMut(Measured)) {
        let goes_on = |steps: &ThreadSteps| is_busy && matches!(steps.step, Step::Open { .. });
        self.threads
            .iter_mut()
            .filter(|steps| !goes_on(steps))
            .for_each(|steps| steps.settle(now_ns, report));
    }

    /// The connection is lost: what runs is not measured.
    pub fn interrupt(&mut self, report: &mut impl FnMut(Measured)) {
        let has_work = |steps: &&ThreadSteps| matches!(steps.step, Step::Open { has_work: true, .. });
        self.threads.iter().filter(has_work).for_each(|_| report(Measured::Unobserved));
        self.threads = Default::default();
    }
}

impl ThreadSteps {
    /// Whether a wait that began at this time may be for the step.
    fn is_concerned(&self, begun_ns: u64) -> bool {
        match self.step {
            Step::None => false,
            Step::Open { .. } => true,
            Step::Ended { ended_ns, .. } => begun_ns.saturating_sub(ended_ns) < REQUEST_GAP_NS,
        }
    }

    /// Reports a step and a request that are over at `now_ns`.
    fn settle(&mut self, now_ns: u64, report: &mut impl FnMut(Measured)) {
        let is_over = |since_ns: u64| now_ns.saturating_sub(since_ns) >= REQUEST_GAP_NS;
        match self.step {
            Step::Open { began_ns, has_work, passed_ns: Some(passed_ns), .. } if is_over(passed_ns) => {
                if has_work {
                    self.end_step(began_ns, passed_ns, report);
                }
                self.step = Step::None;
            }
            Step::Open { has_work, idle_ns: Some(idle_ns), .. }
                if now_ns.saturating_sub(idle_ns) >= UNAWAITED_NS =>
            {
                if has_work {
                    report(Measured::Unobserved);
                }
                self.step = Step::None;
            }
            Step::Ended { began_ns, ended_ns } if is_over(ended_ns) => {
                self.end_step(began_ns, ended_ns, report);
                self.step = Step::None;
            }
            _ => {}
        }
        if self.step == Step::None
            && let Some(request) = self.request.take_if(|request| is_over(request.ended_ns))
        {
            report(Measured::Request(request.ended_ns.saturating_sub(request.began_ns)));
        }
    }

    /// Reports a step, and adds it to the request.
    fn end_step(&mut self, began_ns: u64, ended_ns: u64, report: &mut impl FnMut(Measured)) {
        report(Measured::Step(ended_ns.saturating_sub(began_ns)));
        let request = self.request.get_or_insert(Span { began_ns, ended_ns });
        request.ended_ns = ended_ns;
    }
}

#[cfg(test)]
mod tests;
