//! How much time is left, and whether somebody wants the end.

use std::cell::Cell;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::signals::Interrupts;

/// The time limit came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the time limit came first")]
pub(super) struct TimeUp;

/// Time since the start.
pub(super) struct Clock<'a> {
    begin: Instant,
    limit: Option<Duration>,
    interrupts: &'a Interrupts,
    interrupted: Cell<bool>,
}

impl<'a> Clock<'a> {
    /// Starts it.
    pub(super) fn start(limit: Option<Duration>, interrupts: &'a Interrupts) -> Self {
        Self { begin: Instant::now(), limit, interrupts, interrupted: Cell::new(false) }
    }

    /// Fails if the limit has come, or a signal.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.check().inspect_err(|_| self.interrupted.set(true))
    }

    /// Lets a moment pass; the same as [`Clock::check`].
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.pause().inspect_err(|_| self.interrupted.set(true))
    }

    /// Fails if so much time is not left.
    pub(super) fn has(&self, needed: Duration) -> Result<(), TimeUp> {
        let ends = self.begin.elapsed() + needed;
        if self.limit.is_some_and(|limit| ends >= limit) { Err(TimeUp) } else { Ok(()) }
    }

    /// Whether a signal has been seen.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.get()
    }
}
