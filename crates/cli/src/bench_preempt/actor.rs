//! A generator that works on command.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::commanded::{Answer, Command, Ran, Served};

use super::clock::Clock;
use crate::stage::Stage;
use crate::supervise::{Line, Process};

/// How long it may take beyond what it was asked to do: contexts take seconds where many start.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long it may take to end in its own way.
const FAREWELL: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Its process, which ends with this.
#[derive(Debug)]
pub(super) struct Actor {
    process: Process,
    lines: Receiver<Line>,
    /// Name of its device.
    pub(super) device: String,
}

impl Actor {
    /// Starts it and waits until its first kernel has run.
    ///
    /// # Errors
    /// If it cannot be started, does not get as far, or lacks the hook that it should have (or the other way round).
    pub(super) fn start(
        stage: &Stage,
        name: &str,
        command: std::process::Command,
        hooked: bool,
        clock: &Clock<'_>,
    ) -> anyhow::Result<Self> {
        let (sender, lines) = channel();
        let process = stage.start(name, command, Some(sender))?;
        let mut actor = Self { process, lines, device: String::new() };
        match actor.answer(PATIENCE, clock)? {
            Answer::Ready { device, hooked: found, .. } if found == hooked => actor.device = device,
            Answer::Ready { .. } => {
                bail!("{name} should run {} the hook", if hooked { "under" } else { "without" })
            }
            other => bail!("{name} said {other:?} first"),
        }
        Ok(actor)
    }

    /// Serves requests.
    pub(super) fn serve(
        &mut self,
        command: &Command,
        lasting: Duration,
        clock: &Clock<'_>,
    ) -> anyhow::Result<Served> {
        match self.ask(command, lasting, clock)? {
            Answer::Served(served) if served.proof.holds() => Ok(served),
            Answer::Served(_) => {
                bail!("{}'s buffer is not what its kernels leave behind", self.process.name())
            }
            other => bail!("{} said {other:?}", self.process.name()),
        }
    }

    /// Begins to run kernels, and runs them when this returns.
    pub(super) fn run(&mut self, kernel_us: u32, clock: &Clock<'_>) -> anyhow::Result<()> {
        match self.ask(&Command::Run { kernel_us: kernel_us.into() }, Duration::ZERO, clock)? {
            Answer::Running => Ok(()),
            other => bail!("{} said {other:?}", self.process.name()),
        }
    }

    /// Ends [`Actor::run`]: the kernels that ended in a span, proven by the buffer.
    pub(super) fn halt(&mut self, from_ns: u64, to_ns: u64, clock: &Clock<'_>) -> anyhow::Result<Ran> {
        match self.ask(&Command::Stop { from_ns, to_ns }, Duration::ZERO, clock)? {
            Answer::Ran(ran) if ran.proof.holds() => Ok(ran),
            Answer::Ran(_) => bail!("{}'s buffer is not what its kernels leave behind", self.process.name()),
            other => bail!("{} said {other:?}", self.process.name()),
        }
    }

    fn ask(&mut self, command: &Command, lasting: Duration, clock: &Clock<'_>) -> anyhow::Result<Answer> {
        self.process.tell(&serde_json::to_string(command)?)?;
        self.answer(lasting + PATIENCE, clock)
    }

    fn answer(&mut self, patience: Duration, clock: &Clock<'_>) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + patience;
        loop {
            clock.check()?;
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    return serde_json::from_str(&line.text)
                        .with_context(|| format!("{} said: {}", line.from, line.text));
                }
                Err(RecvTimeoutError::Timeout) => self.process.check_running()?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.process.check_running()?;
                    bail!("{} says no more{}", self.process.name(), self.process.log_tail());
                }
            }
            if Instant::now() > deadline {
                bail!("{} does not answer{}", self.process.name(), self.process.log_tail());
            }
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Whoever is killed amid its work can take an MPS server along.
        self.process.close_input();
        let _ = self.process.wait(Instant::now() + FAREWELL);
    }
}
