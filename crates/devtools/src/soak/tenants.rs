//! All processes of the clients.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sluice_load::random_calls::{Command, Counts, Random};
use sluice_test_bed::Interrupts;

use super::report::Findings;
use super::tenant::Tenant;
use super::tenant_node::TenantNode;

/// How long processes may take until they are ready or quiet, with daemons that serve: a hundred times what they take on two idle cores.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The processes, in the order of the clients.
pub(super) struct Tenants {
    pub(super) all: Vec<Tenant>,
    random: Random,
    started: u64,
}

impl Tenants {
    /// Starts every process and waits until it is ready.
    pub(super) fn start(
        node: &impl TenantNode,
        random: &mut Random,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Self> {
        let mut tenants = Self { all: Vec::new(), random: random.split(0), started: 0 };
        for (client, of) in node.clients().iter().enumerate() {
            for _ in 0..of.processes {
                let tenant = tenants.start_one(node, client)?;
                tenants.all.push(tenant);
            }
        }
        let mut findings = Findings::new(0);
        tenants.wait_until(interrupts, &mut findings, |tenant| tenant.is_ready)?;
        Ok(tenants)
    }

    fn start_one(&mut self, node: &impl TenantNode, client: usize) -> anyhow::Result<Tenant> {
        self.started += 1;
        let name = format!("{}-{}", node.clients()[client].name, self.started);
        Tenant::start(node, client, &name, self.random.word())
    }

    /// Lets all processes make calls.
    pub(super) fn go(&mut self) -> anyhow::Result<()> {
        self.all.iter_mut().try_for_each(|tenant| {
            tenant.is_disturbed = false;
            tenant.send(Command::Go)
        })
    }

    /// Reads answers, and replaces each process that has ended by itself.
    pub(super) fn poll(&mut self, node: &impl TenantNode, findings: &mut Findings) -> anyhow::Result<()> {
        for index in 0..self.all.len() {
            let was_ready = self.all[index].is_ready;
            if !self.all[index].poll(findings)? {
                self.replace(node, index)?;
            } else if !was_ready && self.all[index].is_ready {
                self.all[index].send(Command::Go)?;
            }
        }
        Ok(())
    }

    /// Kills a process and starts another one of its client.
    pub(super) fn replace(&mut self, node: &impl TenantNode, index: usize) -> anyhow::Result<()> {
        self.all[index].process.kill();
        self.all[index] = self.start_one(node, self.all[index].client)?;
        Ok(())
    }

    /// Makes all processes quiet, and lets them free their memory if `frees`. Fails if one does not become quiet.
    pub(super) fn quiet(
        &mut self,
        frees: bool,
        findings: &mut Findings,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        self.wait_until(interrupts, findings, |tenant| tenant.is_ready)?;
        let command = if frees { Command::Free } else { Command::Quiet };
        self.all.iter_mut().try_for_each(|tenant| tenant.send(command))?;
        let mut counts = BTreeMap::new();
        self.wait_until(interrupts, findings, |tenant| {
            if let Some(answer) = tenant.take_answer() {
                counts.insert(tenant.process.pid(), answer);
            }
            counts.contains_key(&tenant.process.pid())
        })?;
        for tenant in &mut self.all {
            let last = std::mem::take(&mut tenant.counts);
            tenant.counts = counts.get(&tenant.process.pid()).copied().unwrap_or_default();
            add(findings, last, tenant.counts);
        }
        Ok(())
    }

    fn wait_until(
        &mut self,
        interrupts: &Interrupts,
        findings: &mut Findings,
        mut is_reached: impl FnMut(&mut Tenant) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let mut missing = Vec::new();
            for tenant in &mut self.all {
                if !tenant.poll(findings)? {
                    anyhow::bail!("{} has ended", tenant.process.name());
                }
                if !is_reached(tenant) {
                    missing.push(tenant.process.name().to_owned());
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (names, seconds) = (missing.join(", "), ANSWER_TIMEOUT.as_secs());
                anyhow::bail!("{names}: neither ready nor quiet after {seconds} s");
            }
            interrupts.pause()?;
        }
    }

    /// Lets every stopped process run again.
    pub(super) fn resume_all(&self) {
        self.all.iter().for_each(|tenant| tenant.signal(Signal::SIGCONT));
    }
}

/// Adds what a process has done since its last answer.
fn add(findings: &mut Findings, last: Counts, now: Counts) {
    let figures = &mut findings.figures;
    figures.calls += now.calls.saturating_sub(last.calls);
    figures.allocations_refused += now.refused.saturating_sub(last.refused);
    figures.kernels_verified += now.verified.saturating_sub(last.verified);
}
