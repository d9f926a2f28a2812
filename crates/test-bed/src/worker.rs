//! Programs that answer each line of input with one line of output.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

use crate::process::{NoLine, Output, Process};

/// Time between two calls of `check` while a worker is waited for.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A child that is asked one question after the other. It is killed when this is dropped.
#[derive(Debug)]
pub struct Worker {
    /// The process.
    pub process: Process,
    /// A deadline was missed once. A line that comes later may be the answer to an older question.
    is_late: bool,
}

impl Worker {
    /// Starts it; its standard error goes to `NAME.log` in `logs`.
    pub fn start(name: &str, command: Command, logs: &Path) -> anyhow::Result<Self> {
        Ok(Self { process: Process::start(name, command, logs, Output::Lines)?, is_late: false })
    }

    /// Its next line. `check` is called every 20 ms and may end the wait. Fails if no line comes until `deadline`, or one came too
    /// late before.
    pub fn next_line(
        &mut self,
        deadline: Instant,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        if self.is_late {
            bail!("{} did not answer in time before", self.process.name());
        }
        loop {
            check()?;
            match self.process.next_line(deadline.min(Instant::now() + CHECK_EVERY)) {
                Ok(line) => return Ok(line),
                Err(NoLine::Closed) => {
                    self.process.check_running()?;
                    bail!("{} has closed its output{}", self.process.name(), self.process.log_tail());
                }
                Err(NoLine::TimedOut) => {}
            }
            if Instant::now() >= deadline {
                self.is_late = true;
                bail!("{} does not answer{}", self.process.name(), self.process.log_tail());
            }
        }
    }

    /// Its next line, read as JSON.
    pub fn answer<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
        check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        let line = self.next_line(deadline, check)?;
        serde_json::from_str(&line).with_context(|| format!("{} printed {line}", self.process.name()))
    }
}

#[cfg(test)]
mod tests;
