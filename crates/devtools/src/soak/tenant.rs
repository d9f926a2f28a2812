//! One process of a client.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_load::random_calls::{Answer, Command, Counts};
use sluice_test_bed::{NoLine, Output, Process};

use super::census::{Usage, usage};
use super::checks::has_grown;
use super::clients::Client;
use super::report::Findings;
use super::tenant_node::TenantNode;

/// Growth of a process between two quiet states without memory on the GPU. The simulated GPU's memory is memory of the process.
const RSS_GROWTH_KIB: u64 = 64 << 10;
const OTHER_GROWTH: usize = 6;

/// A process that makes random calls. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Tenant {
    /// Position of its client.
    pub(super) client: usize,
    pub(super) definition: &'static Client,
    pub(super) process: Process,
    /// It has answered and makes calls, or waits for the next command.
    pub(super) is_ready: bool,
    /// Killed, started or stopped in this round.
    pub(super) is_disturbed: bool,
    /// The answer of the last quiet state.
    pub(super) counts: Counts,
    /// The answer of the quiet state that is being reached.
    answer: Option<Counts>,
    /// Its first quiet state.
    first_usage: Option<Usage>,
    /// The first broken statement was recorded, so the end of the process is no further one.
    has_failed: bool,
}

impl Tenant {
    pub(super) fn start(
        node: &impl TenantNode,
        client: usize,
        name: &str,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let command = node.tenant_command(client, seed)?;
        Ok(Self {
            client,
            definition: &node.clients()[client],
            process: Process::start(name, command, &node.folder(), Output::Lines)?,
            is_ready: false,
            is_disturbed: true,
            counts: Counts::default(),
            answer: None,
            first_usage: None,
            has_failed: false,
        })
    }

    pub(super) fn client_name(&self) -> &'static str {
        self.definition.name
    }

    /// Sends a command. A process that has failed reads none, which [`Tenant::poll`] reports.
    pub(super) fn send(&mut self, command: Command) -> anyhow::Result<()> {
        self.answer = None;
        let line = serde_json::to_string(&command)?;
        let _ = self.process.send_line(&line);
        Ok(())
    }

    /// Reads its answers. A process that fails or ends has broken a statement; it is to be started again. Returns whether it runs.
    pub(super) fn poll(&mut self, findings: &mut Findings) -> anyhow::Result<bool> {
        loop {
            match self.process.next_line(Instant::now()) {
                Ok(line) => {
                    let answer = serde_json::from_str(&line);
                    match answer.with_context(|| format!("{} printed {line}", self.process.name()))? {
                        Answer::Ready => self.is_ready = true,
                        Answer::Quiet(counts) => self.answer = Some(counts),
                        Answer::Failed(why) => {
                            self.has_failed = true;
                            let found = format!("{}: {why}", self.process.name());
                            findings.broken("no driver call fails, and every kernel has its effect", &found);
                        }
                    }
                }
                Err(NoLine::TimedOut) => return Ok(true),
                Err(NoLine::Closed) => break,
            }
        }
        if !self.has_failed {
            let status = self.process.wait(Instant::now() + Duration::from_secs(5))?;
            let found = format!("{}: {status:?}{}", self.process.name(), self.process.log_tail());
            findings.broken("no tenant ends by itself", &found);
        }
        Ok(false)
    }

    /// The answer to the last command, once it has come.
    pub(super) fn take_answer(&mut self) -> Option<Counts> {
        self.answer.take()
    }

    /// Stops it. Returns its process id.
    pub(super) fn stop(&mut self) -> i32 {
        self.is_disturbed = true;
        self.signal(Signal::SIGSTOP);
        self.process.pid()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The process exists until this value reaps it.
        let _ = kill(Pid::from_raw(self.process.pid()), signal);
    }

    /// Compares what the hook uses in a quiet state with the process's first one.
    pub(super) fn compare_usage(&mut self, findings: &mut Findings) {
        let now = usage(self.process.pid());
        let first = *self.first_usage.get_or_insert(now);
        let has_grown = has_grown(first, now, RSS_GROWTH_KIB, OTHER_GROWTH);
        findings.check("tenants do not grow", !has_grown, || {
            format!("{}: {first:?}, then {now:?}", self.process.name())
        });
    }

    /// Closes its input and waits until it has ended in order.
    pub(super) fn end(mut self, timeout: Duration) -> anyhow::Result<()> {
        self.process.close_input();
        match self.process.wait(Instant::now() + timeout)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} ended with {status}{}", self.process.name(), self.process.log_tail()),
            None => bail!("{} does not end{}", self.process.name(), self.process.log_tail()),
        }
    }
}
