//! What every part of the manager acts through: clock, poller, closing thread, metrics and the limit of log lines; and the tables that
//! several parts read.

use crate::clients::{Clients, Processes};
use crate::clock::Clock;
use crate::closer::Closer;
use crate::grants::Grants;
use crate::log_limiter::LogLimiter;
use crate::metrics::Metrics;
use crate::poller::Poller;

/// The tables of clients, processes and grants, and the [`Io`]. The event loop owns them and lends them to the parts.
pub(crate) struct Shared {
    pub(crate) clients: Clients,
    pub(crate) processes: Processes,
    pub(crate) grants: Grants,
    pub(crate) io: Io,
}

/// Clock, poller, closing thread, metrics and log limit.
pub(crate) struct Io {
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) poller: Poller,
    pub(crate) closer: Closer,
    pub(crate) metrics: Metrics,
    pub(crate) log: LogLimiter,
}

impl Io {
    /// The current time, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Whether a log line of this kind may be written now: `Some` with the number of lines dropped since the last one.
    pub(crate) fn may_log(&mut self, kind: &'static str) -> Option<u64> {
        self.log.pass(kind, self.clock.now_ns())
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
    }
}
