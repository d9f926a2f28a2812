//! A load generator that serves requests or runs kernels on command.

use std::time::{Duration, Instant};

use anyhow::bail;
use sluice_load::command_driven::{Answer, Command, RunResult, ServeResult};

use super::TimeLimit;
use sluice_test_bed::{TestBed, Worker};

/// Time for an answer beyond the time of the command itself: contexts take seconds where many processes start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// How long it may take to end after its input is closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The generator's process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Generator {
    worker: Worker,
    pub(super) device: String,
}

impl Generator {
    /// Starts it and waits until its first kernel has run. Fails if it lacks the hook that it should have, or the other way round.
    pub(super) fn start(
        bed: &TestBed,
        name: &str,
        command: std::process::Command,
        hooked: bool,
        limit: &TimeLimit<'_>,
    ) -> anyhow::Result<Self> {
        let worker = Worker::start(name, command, bed.path())?;
        let mut generator = Self { worker, device: String::new() };
        match generator.answer(ANSWER_TIMEOUT, limit)? {
            Answer::Ready { device, hooked: found, .. } if found == hooked => generator.device = device,
            Answer::Ready { .. } => {
                bail!("{name} should run {} the hook", if hooked { "under" } else { "without" })
            }
            other => bail!("{name} answered {other:?} first"),
        }
        Ok(generator)
    }

    pub(super) fn serve(
        &mut self,
        command: &Command,
        lasting: Duration,
        limit: &TimeLimit<'_>,
    ) -> anyhow::Result<ServeResult> {
        match self.ask(command, lasting, limit)? {
            Answer::Served(served) if served.proof.is_consistent() => Ok(served),
            other => self.refuse(&other),
        }
    }

    /// Starts kernels. The first one has run when this returns.
    pub(super) fn run(&mut self, kernel_us: u32, limit: &TimeLimit<'_>) -> anyhow::Result<()> {
        match self.ask(&Command::Run { kernel_us: kernel_us.into() }, Duration::ZERO, limit)? {
            Answer::Running => Ok(()),
            other => self.refuse(&other),
        }
    }

    /// Ends [`Generator::run`]. Returns the kernels that ended in a span, proven by the buffer.
    pub(super) fn halt(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        limit: &TimeLimit<'_>,
    ) -> anyhow::Result<RunResult> {
        match self.ask(&Command::Stop { from_ns, to_ns }, Duration::ZERO, limit)? {
            Answer::Ran(ran) if ran.proof.is_consistent() => Ok(ran),
            other => self.refuse(&other),
        }
    }

    /// The error for an answer to another command, or with a buffer that is not the result of the kernels.
    fn refuse<T>(&self, answer: &Answer) -> anyhow::Result<T> {
        let name = self.worker.process.name();
        match answer {
            Answer::Served(ServeResult { proof, .. }) | Answer::Ran(RunResult { proof, .. })
                if !proof.is_consistent() =>
            {
                bail!("the buffer of {name} is not the result of its kernels")
            }
            other => bail!("{name} answered {other:?}"),
        }
    }

    fn ask(&mut self, command: &Command, lasting: Duration, limit: &TimeLimit<'_>) -> anyhow::Result<Answer> {
        self.worker.process.send_line(&serde_json::to_string(command)?)?;
        self.answer(lasting + ANSWER_TIMEOUT, limit)
    }

    fn answer(&mut self, timeout: Duration, limit: &TimeLimit<'_>) -> anyhow::Result<Answer> {
        self.worker.answer(Instant::now() + timeout, || limit.check())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.worker.process.close_input();
        let _ = self.worker.process.wait(Instant::now() + END_TIMEOUT);
    }
}
