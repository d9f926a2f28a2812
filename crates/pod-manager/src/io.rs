//! What every part of the manager acts through: clock, poller, closing thread, metrics and the limit of log lines.

use crate::clock::Clock;
use crate::closer::Closer;
use crate::log_limiter::{DroppedLines, LogLimiter};
use crate::metrics::Metrics;
use crate::party::Party;
use crate::poller::Poller;
use crate::trace::Tracer;
use sluice_comm::HandOffStep;
use sluice_sys::step_log::StepLog;

/// Owned by the event loop.
pub(crate) struct Io {
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) poller: Poller,
    pub(crate) closer: Closer,
    pub(crate) metrics: Metrics,
    pub(crate) log: LogLimiter,
    /// Where steps of hand-offs are recorded, if a benchmark asks for it.
    pub(crate) steps: Option<StepLog>,
    /// What is recorded for readers of the trace.
    pub(crate) trace: Tracer,
}

impl Io {
    /// The current time, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Records a step of a hand-off at the present time, if a benchmark asks for it.
    pub(crate) fn record_step(&self, step: HandOffStep) {
        if let Some(steps) = &self.steps {
            steps.record(step as u8);
        }
    }

    /// Whether a log line of this kind may be written now. Lines of one party do not take the place of another's.
    pub(crate) fn may_log(&mut self, kind: &'static str, cause: Party) -> Option<DroppedLines> {
        self.log.pass(kind, cause, self.clock.now_ns())
    }
}

/// The system's clock, a poller and metrics that only the test reads.
#[cfg(test)]
pub(crate) fn test_io() -> Io {
    Io {
        clock: Box::new(crate::clock::SystemClock::new().unwrap()),
        poller: Poller::new().unwrap(),
        closer: Closer::start().unwrap(),
        metrics: crate::metrics::pair().unwrap().0,
        log: LogLimiter::default(),
        steps: None,
        trace: Tracer::default(),
    }
}
