//! Tenants of a scenario on the simulated GPU, and the questions that scenarios ask about them.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::record::Record;
use sluice_sim::client;
use sluice_sim::ledger::{Interval, Ledger, Window};
use sluice_sys::clock::monotonic_ns;

use crate::signals::Interrupts;
use crate::stage::{Setting, Stage};
use crate::supervise::{Line, Process};

const PATIENCE: Duration = Duration::from_secs(12);

/// A stage with tenants that come and go. Tenants are dropped before the stage.
#[derive(Debug)]
pub(crate) struct Troupe<'a> {
    /// The tenants that are there.
    pub(crate) tenants: Vec<Process>,
    /// The GPU and the manager.
    pub(crate) stage: Stage,
    lines: RefCell<Receiver<Line>>,
    sender: Sender<Line>,
    interrupts: &'a Interrupts,
}

impl<'a> Troupe<'a> {
    /// A simulated GPU and a manager for these clients, (name, request, limit, memory), with further flags.
    pub(crate) fn new(
        clients: &[(&str, f64, f64, u64)],
        manager_flags: &[&str],
        interrupts: &'a Interrupts,
    ) -> anyhow::Result<Self> {
        let setting = Setting {
            simulated: true,
            resource_file: super::resource_file(clients),
            manager_flags: manager_flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        let stage = Stage::build(setting, || interrupts.pause())?;
        let (sender, lines) = channel();
        Ok(Self { tenants: Vec::new(), stage, lines: RefCell::new(lines), sender, interrupts })
    }

    /// Starts a best-effort process of a client and waits for its first kernel. Returns its pid.
    pub(crate) fn enter(&mut self, name: &str, client: &str, flags: &[&str]) -> anyhow::Result<i32> {
        let load = ["be", "--depth", "4"].iter().chain(flags);
        let mut process = self.stage.start_tenant(name, client, load, self.sender.clone())?;
        let deadline = Instant::now() + PATIENCE;
        let started = |line: &Line| matches!(Record::parse(&line.text), Ok(Record::Started { .. }));
        while !self.lines.borrow().try_iter().any(|line| line.from == name && started(&line)) {
            process.check_running()?;
            if Instant::now() > deadline {
                bail!("{name} did not start{}", process.log_tail());
            }
            self.look()?;
        }
        let pid = process.pid();
        self.tenants.push(process);
        Ok(pid)
    }

    /// Kills a tenant with SIGKILL and forgets it. Returns the moment just before, CLOCK_MONOTONIC in nanoseconds.
    pub(crate) fn kill(&mut self, pid: i32) -> anyhow::Result<u64> {
        let place = self.tenants.iter().position(|tenant| tenant.pid() == pid).context("no such tenant")?;
        let mut tenant = self.tenants.swap_remove(place);
        let now = monotonic_ns();
        tenant.kill();
        Ok(now)
    }

    /// Lets time pass while tenants and daemons run.
    pub(crate) fn let_pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            for tenant in &mut self.tenants {
                tenant.check_running()?;
            }
            self.look()?;
        }
        Ok(())
    }

    /// Use of the GPU in a span of CLOCK_MONOTONIC, nanoseconds.
    pub(crate) fn window(&self, from: u64, to: u64) -> anyhow::Result<Window> {
        client::window(&self.stage.simulator_socket(), from, to).context("the simulator does not answer")
    }

    /// Who had the GPU when, in a span of CLOCK_MONOTONIC, nanoseconds.
    pub(crate) fn timeline(&self, from: u64, to: u64) -> anyhow::Result<Vec<Interval>> {
        client::timeline(&self.stage.simulator_socket(), from, to).context("the simulator does not answer")
    }

    /// What the GPU has counted.
    pub(crate) fn ledger(&self) -> anyhow::Result<Ledger> {
        client::ledger(&self.stage.simulator_socket()).context("the simulator does not answer")
    }

    /// A moment, and the end of the run if that is what a signal asks for.
    pub(crate) fn look(&self) -> anyhow::Result<()> {
        self.interrupts.pause()
    }

    /// Starts a manager in place of one that was killed.
    pub(crate) fn restart_manager(&mut self) -> anyhow::Result<()> {
        self.stage.restart_manager(|| self.interrupts.pause())
    }
}
