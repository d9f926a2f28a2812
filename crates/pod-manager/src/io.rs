//! What every part of the manager acts through: clock, poller, closing thread, metrics and the limit of log lines.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::poller::Poller;
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};

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

/// The closing thread's sending end: it closes what peers have sent or hold the other end of. The last close of a descriptor can take as
/// long as its creator likes (a TCP socket that lingers, a file of a slow file system), and a unix socket closes the descriptors that
/// still lie in it. No peer can make the event loop wait for that.
#[derive(Clone, Debug)]
pub(crate) struct Closer(Sender<Box<dyn Send>>);

impl Closer {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (sender, things) = channel();
        std::thread::Builder::new()
            .name("sluice-close".into())
            .spawn(move || things.iter().for_each(drop))?;
        Ok(Self(sender))
    }

    /// Drops `thing` on the thread.
    pub(crate) fn close(&self, thing: impl Send + 'static) {
        // The thread ends no earlier than this.
        let _ = self.0.send(Box::new(thing));
    }
}

/// 10 lines of one kind at once, then one a second.
const LOG_RATE: Rate = Rate::per_second(10, 1);

/// Decides which log lines are written, by their kind: a client that repeats one mistake does not fill the log.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    limiter: RateLimiter,
    dropped: u64,
}

impl LogLimiter {
    /// `Some` if a line of this kind may be written now, with the number of lines dropped since the last one.
    pub(crate) fn pass(&mut self, kind: &'static str, now: u64) -> Option<u64> {
        let kind =
            self.kinds.entry(kind).or_insert(Kind { limiter: RateLimiter::full(LOG_RATE), dropped: 0 });
        if kind.limiter.try_take(1, now) {
            return Some(std::mem::take(&mut kind.dropped));
        }
        kind.dropped += 1;
        None
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

#[cfg(test)]
mod tests;
