//! A simulated GPU with a manager and best-effort tenants that come and go.

use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_sim::ledger::{Interval, Ledger, Window};
use sluice_sys::clock::monotonic_ns;
use sluice_test_bed::{Interrupts, Tenant, TestBed, TestBedOptions};

use super::setup::{resource_file, start_bed};

/// Tenants on a test bed. Tenants are dropped before the bed.
#[derive(Debug)]
pub(super) struct ScenarioBed<'a> {
    /// The tenants that run.
    pub(super) tenants: Vec<Tenant>,
    /// The GPU and the manager.
    pub(super) bed: TestBed,
    interrupts: &'a Interrupts,
}

impl<'a> ScenarioBed<'a> {
    /// A simulated GPU and a manager for these clients, (name, request, limit, memory), with further flags.
    pub(super) fn new(
        clients: &[(&str, f64, f64, u64)],
        manager_flags: &[&str],
        interrupts: &'a Interrupts,
    ) -> anyhow::Result<Self> {
        let options = TestBedOptions {
            simulated: true,
            resource_file: resource_file(clients),
            manager_flags: manager_flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..TestBedOptions::default()
        };
        let bed = start_bed(options, || interrupts.pause())?;
        Ok(Self { tenants: Vec::new(), bed, interrupts })
    }

    /// Starts a best-effort process of a client and waits for its first kernel. Returns its pid.
    pub(super) fn start_tenant(&mut self, name: &str, client: &str, flags: &[&str]) -> anyhow::Result<i32> {
        let load = ["be", "--depth", "4"].iter().chain(flags);
        let mut tenant = Tenant::start(&self.bed, name, client, load)?;
        tenant.wait_until_started(|| self.interrupts.pause())?;
        let pid = tenant.pid();
        self.tenants.push(tenant);
        Ok(pid)
    }

    /// Kills a tenant with SIGKILL. Returns the time just before, CLOCK_MONOTONIC in nanoseconds.
    pub(super) fn kill(&mut self, pid: i32) -> anyhow::Result<u64> {
        let place = self.tenants.iter().position(|tenant| tenant.pid() == pid).context("no such tenant")?;
        let mut tenant = self.tenants.swap_remove(place);
        let now = monotonic_ns();
        tenant.process().kill();
        Ok(now)
    }

    /// Waits for `time` while tenants run.
    pub(super) fn let_pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.tenants.iter_mut().try_for_each(Tenant::poll)?;
            self.pause()?;
        }
        Ok(())
    }

    /// Use of the GPU in a span of CLOCK_MONOTONIC, nanoseconds.
    pub(super) fn window(&self, from: u64, to: u64) -> anyhow::Result<Window> {
        self.bed.gpu().window(from, to)
    }

    /// The processes that had the GPU in a span of CLOCK_MONOTONIC, nanoseconds.
    pub(super) fn timeline(&self, from: u64, to: u64) -> anyhow::Result<Vec<Interval>> {
        self.bed.gpu().timeline(from, to)
    }

    /// What the GPU has counted.
    pub(super) fn ledger(&self) -> anyhow::Result<Ledger> {
        self.bed.gpu().ledger()
    }

    /// Sleeps for a moment, and fails if a signal asks for the end.
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        self.interrupts.pause()
    }

    /// Starts a manager in place of one that was killed.
    pub(super) fn restart_manager(&mut self) -> anyhow::Result<()> {
        self.bed.start_manager(|| self.interrupts.pause())
    }
}
