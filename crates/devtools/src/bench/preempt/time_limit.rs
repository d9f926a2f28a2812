//! The time limit of a run, and signals that end it earlier.

use std::cell::Cell;
use std::time::{Duration, Instant};

use thiserror::Error;

use sluice_test_bed::Interrupts;

/// The time limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the time limit was reached first")]
pub(super) struct TimeUp;

/// Time since the start, with an optional limit.
pub(super) struct TimeLimit<'a> {
    begin: Instant,
    limit: Option<Duration>,
    interrupts: &'a Interrupts,
    interrupted: Cell<bool>,
}

impl<'a> TimeLimit<'a> {
    /// Starts it.
    pub(super) fn start(limit: Option<Duration>, interrupts: &'a Interrupts) -> Self {
        Self { begin: Instant::now(), limit, interrupts, interrupted: Cell::new(false) }
    }

    /// Fails if the limit was reached or a signal is pending.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.check().inspect_err(|_| self.interrupted.set(true))
    }

    /// Sleeps for a moment, then the same as [`TimeLimit::check`].
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.pause().inspect_err(|_| self.interrupted.set(true))
    }

    /// Fails if less time than `needed` is left.
    pub(super) fn has(&self, needed: Duration) -> Result<(), TimeUp> {
        let ends = self.begin.elapsed() + needed;
        if self.limit.is_some_and(|limit| ends >= limit) { Err(TimeUp) } else { Ok(()) }
    }

    /// Whether a signal was pending.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.get()
    }
}
