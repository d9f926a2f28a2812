//! Programs of ours that the doctor watches: one question, one line of JSON back.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use serde::de::DeserializeOwned;
use sluice_load::steady;

use crate::supervise::{Line, Process};

/// A child whose lines are read one by one. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Helper {
    process: Process,
    lines: Receiver<Line>,
    /// It has not answered in time once. Whatever it says from then on may be the answer to an older question.
    is_late: bool,
}

impl Helper {
    /// Starts it.
    pub(super) fn start(name: &str, command: Command, logs: &Path) -> anyhow::Result<Self> {
        let (sender, lines) = mpsc::channel();
        Ok(Self { process: Process::start(name, command, logs, Some(sender))?, lines, is_late: false })
    }

    pub(super) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Writes a line to it.
    pub(super) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.process.tell(line)
    }

    /// Its next line, if it has always answered in time.
    pub(super) fn answer<T: DeserializeOwned>(&mut self, until: Instant) -> anyhow::Result<T> {
        let name = self.process.name();
        if self.is_late {
            bail!("{name} did not answer in time before");
        }
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                serde_json::from_str(&line.text).with_context(|| format!("{name} said {}", line.text))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.is_late = true;
                bail!("{name} does not answer{}", self.process.log_tail())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{name} ended{}", self.process.log_tail()),
        }
    }
}

/// A program that the driver lets do nothing: no library of ours is to blame.
#[derive(Debug, thiserror::Error)]
#[error("a program gets no context: {0}")]
pub(super) struct NoContext(String);

/// A busy program.
#[derive(Debug)]
pub(super) struct Busy(pub(super) Helper);

impl Busy {
    /// Waits until it has its context.
    pub(super) fn ready(&mut self, until: Instant) -> anyhow::Result<()> {
        match self.0.answer(until)? {
            steady::Line::Ready { .. } => Ok(()),
            steady::Line::Failed { why } => Err(NoContext(why).into()),
            steady::Line::Count { .. } => bail!("counts before anything was asked"),
        }
    }

    /// Kernels that it has completed.
    pub(super) fn completed(&mut self, until: Instant) -> anyhow::Result<u64> {
        self.0.tell("count")?;
        loop {
            match self.0.answer(until)? {
                steady::Line::Count { completed } => return Ok(completed),
                steady::Line::Failed { why } => return Err(anyhow!(why)),
                steady::Line::Ready { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let logs = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0; read first; read second; echo 1; echo 2; read end"]);
        let mut helper = Helper::start("child", command, logs.path()).unwrap();
        let in_time = || Instant::now() + Duration::from_secs(20);
        assert_eq!(helper.answer::<u32>(in_time()).unwrap(), 0);
        helper.tell("first").unwrap();
        assert!(helper.answer::<u32>(Instant::now()).unwrap_err().to_string().contains("does not answer"));
        helper.tell("second").unwrap();
        let why = helper.answer::<u32>(in_time()).unwrap_err().to_string();
        assert!(why.contains("child did not answer in time"), "{why}");
    }
}
