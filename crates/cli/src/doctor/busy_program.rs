//! A program that keeps the GPU busy and counts its completed kernels.

use std::time::Instant;

use anyhow::{anyhow, bail};
use serde::de::DeserializeOwned;
use sluice_load::steady;
use sluice_test_bed::Worker;

/// The driver gives a program no context. The hook is not the cause.
#[derive(Debug, thiserror::Error)]
#[error("a program gets no context: {0}")]
pub(super) struct NoContext(String);

/// The next answer of a child, until `deadline`.
pub(super) fn answer<T: DeserializeOwned>(worker: &mut Worker, deadline: Instant) -> anyhow::Result<T> {
    worker.answer(deadline, || Ok(()))
}

/// A program that keeps the GPU busy.
#[derive(Debug)]
pub(super) struct BusyProgram(pub(super) Worker);

impl BusyProgram {
    /// Waits until it has its context.
    pub(super) fn ready(&mut self, deadline: Instant) -> anyhow::Result<()> {
        match answer(&mut self.0, deadline)? {
            steady::Line::Ready { .. } => Ok(()),
            steady::Line::Failed { why } => Err(NoContext(why).into()),
            steady::Line::Count { .. } => bail!("the program printed a count before it was asked"),
        }
    }

    /// Number of kernels that it has completed.
    pub(super) fn completed(&mut self, deadline: Instant) -> anyhow::Result<u64> {
        self.0.send("count")?;
        loop {
            match answer(&mut self.0, deadline)? {
                steady::Line::Count { completed } => return Ok(completed),
                steady::Line::Failed { why } => return Err(anyhow!(why)),
                steady::Line::Ready { .. } => {}
            }
        }
    }
}
