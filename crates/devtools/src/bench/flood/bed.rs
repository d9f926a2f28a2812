//! The processes of the benchmark: a simulated GPU, a pod-manager with an unread log, tenants, and the sources of the flood.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_test_bed::{Interrupts, Metrics, TestBed, TestBedOptions, Worker, http};

use super::super::disturb::messages::{Answer, Command};
use super::super::wire_client::WireClient;
use super::super::{ANSWER_TIMEOUT, answer, next_line, resource_file, start_bed, worker_command};
use super::source::{FLOODER, Kind};

/// The busy tenants with their requests, which are their entitled shares.
pub(super) const TENANTS: [(&str, f64); 3] = [("a", 0.5), ("b", 0.3), ("c", 0.2)];
/// The client that asks for its memory limit.
const PROBE: &str = "probe";
/// Kernel of a tenant.
const KERNEL_US: &str = "2000";
/// How long the manager may take until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// All processes but the flood. They are dropped before the bed.
pub(super) struct FloodBed {
    tenants: Vec<Worker>,
    manager: Manager,
    pub(super) metrics: SocketAddr,
    pub(super) health: SocketAddr,
    pub(super) bed: TestBed,
}

/// The pod-manager, killed when this is dropped.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl FloodBed {
    /// Starts everything and has the tenants work.
    pub(super) fn start(interrupts: &Interrupts) -> anyhow::Result<Self> {
        let tenants = TENANTS.iter().map(|(name, request)| (*name, *request, 1.0, 8 << 30));
        let others = [(PROBE, 0.0, 1.0, 1 << 30), (FLOODER, 0.0, 1.0, 1 << 30)];
        let clients: Vec<_> = tenants.chain(others).collect();
        let options = TestBedOptions { simulated: true, with_manager: false, ..TestBedOptions::default() };
        let bed = start_bed(options, || interrupts.pause())?;
        bed.write_resource_file(&resource_file(&clients))?;
        let (metrics, health) = (http::free_address()?, http::free_address()?);
        let manager = start_manager(&bed, metrics, health)?;
        let mut started = Self { tenants: Vec::new(), manager, metrics, health, bed };
        started.wait_until_ready(interrupts)?;
        for (name, _) in TENANTS {
            let tenant = started.start_tenant(name, interrupts)?;
            started.tenants.push(tenant);
        }
        for tenant in &mut started.tenants {
            tenant.process.send_line(&serde_json::to_string(&Command::Go)?)?;
        }
        Ok(started)
    }

    fn wait_until_ready(&mut self, interrupts: &Interrupts) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while http::get(&self.health.to_string(), "/healthz").is_err() {
            self.check_running()?;
            anyhow::ensure!(Instant::now() < deadline, "the pod-manager does not answer");
            interrupts.pause()?;
        }
        Ok(())
    }

    fn start_tenant(&self, name: &str, interrupts: &Interrupts) -> anyhow::Result<Worker> {
        let mut command = worker_command("disturb-process")?;
        command.args(["--kernel-us", KERNEL_US]);
        self.bed.set_gpu(&mut command, name);
        self.bed.set_hook(&mut command, name);
        let mut tenant = Worker::start(name, command, self.bed.path())?;
        match answer(&mut tenant, interrupts)? {
            Answer::Ready { .. } => Ok(tenant),
            other => anyhow::bail!("{name} answered {other:?} first"),
        }
    }

    /// A connection that asks for the probe's memory limit.
    pub(super) fn probe(&self) -> anyhow::Result<WireClient> {
        let mut probe = WireClient::connect(&self.bed.manager_socket(), PROBE)?;
        probe.attach_memory()?;
        Ok(probe)
    }

    /// Starts the flood, and waits until its connections were made. It ends when the processes are dropped.
    pub(super) fn start_flood(&self, interrupts: &Interrupts) -> anyhow::Result<Vec<Worker>> {
        let start = |(number, kind): (usize, Kind)| -> anyhow::Result<Worker> {
            let mut command = worker_command("flood-source")?;
            command.args(["--kind", kind.name(), "--http", &self.health.to_string()]);
            command.args(["--pages", &self.metrics.to_string(), "--manager"]).arg(self.bed.manager_socket());
            let mut source = Worker::start(&format!("flood-{number}"), command, self.bed.path())?;
            next_line(&mut source, interrupts)?;
            Ok(source)
        };
        Kind::processes().enumerate().map(start).collect()
    }

    /// The manager's metrics. The newest connection of an address closes the oldest, so a scrape beside half-open connections of the same
    /// address may have to be repeated.
    pub(super) fn scrape(&self, interrupts: &Interrupts) -> anyhow::Result<Metrics> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match Metrics::scrape(self.metrics) {
                Err(_) if Instant::now() < deadline => interrupts.pause()?,
                scraped => return scraped.context("the pod-manager serves no metrics"),
            }
        }
    }

    /// Fails if a daemon or a tenant has ended.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.manager.0.try_wait()? {
            anyhow::bail!("the pod-manager ended early ({status})");
        }
        self.bed.check_running()?;
        self.tenants.iter_mut().try_for_each(|tenant| tenant.process.check_running())
    }
}

/// Starts the pod-manager with a log that fills its pipe, which is held open and not read.
fn start_manager(bed: &TestBed, metrics: SocketAddr, health: SocketAddr) -> anyhow::Result<Manager> {
    let mut command = bed.sluice();
    command.arg("pod-manager").arg("--socket").arg(bed.manager_socket());
    command.arg("--resource-file").arg(bed.path().join("clients"));
    command.args(["--metrics", &metrics.to_string(), "--health", &health.to_string()]);
    command.env("RUST_LOG", "debug").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(Manager(command.spawn().context("cannot start the pod-manager")?))
}
