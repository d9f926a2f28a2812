//! A second node of the soak, whose clients have more memory together than the GPU: memory leaves it and returns, and clients are suspended
//! and resumed, while processes and the pod-manager are killed and stopped. Its manager reads a resource file, which `sluice suspend` and
//! `sluice resume` edit.

mod checks;
mod disturbances;
mod host_files;
mod node;
mod suspensions;

use std::path::{Path, PathBuf};

use sluice_load::random_calls::Random;
use sluice_test_bed::Interrupts;

use super::disturbances::Targets;
use super::failure;
use super::report::Findings;
use super::tenant_node::TenantNode;
use super::tenants::Tenants;
use checks::CapacityWitness;
use disturbances::Disturbances;
use node::OvercommittedNode;
use suspensions::Suspensions;

/// The node and its tenants. Processes are dropped before the node.
pub(super) struct Overcommitted {
    tenants: Tenants,
    node: OvercommittedNode,
    suspensions: Suspensions,
    random: Random,
    /// The present round.
    round: Option<(Disturbances, CapacityWitness)>,
}

impl Overcommitted {
    /// Starts it, and waits until its tenants are ready.
    pub(super) fn start(random: &mut Random, interrupts: &Interrupts) -> anyhow::Result<Self> {
        let random = &mut random.split(u64::MAX);
        let node = OvercommittedNode::start(random.once_in(2), interrupts)?;
        let tenants = Tenants::start(&node, random, interrupts)?;
        Ok(Self { tenants, node, suspensions: Suspensions::default(), random: random.split(0), round: None })
    }

    pub(super) fn describe(&self) -> String {
        self.node.describe()
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.node.folder()
    }

    /// Copies all logs to a folder of their own.
    pub(super) fn copy_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.node.copy_logs(&to.join("overcommitted"))
    }

    /// Describes its processes for a soak that has failed.
    pub(super) fn record_failure(&self, command: Option<&Path>) -> anyhow::Result<()> {
        failure::record(&self.node, command)
    }

    /// Lets the tenants make calls.
    pub(super) fn begin_round(&mut self, round: u64, targets: Targets) -> anyhow::Result<()> {
        self.tenants.go()?;
        self.round =
            Some((Disturbances::new(targets, self.random.split(round)), CapacityWitness::begin(targets)));
        Ok(())
    }

    /// Makes the disturbances that are due, and checks what holds at any time.
    pub(super) fn proceed(&mut self, findings: &mut Findings, interrupts: &Interrupts) -> anyhow::Result<()> {
        let Self { tenants, node, suspensions, round, .. } = self;
        let Some((disturbances, capacity)) = round else { return Ok(()) };
        disturbances.proceed(node, tenants, suspensions, findings, interrupts)?;
        tenants.poll(node, findings)?;
        suspensions.look(node, findings)?;
        capacity.look(node, findings)
    }

    /// Ends the disturbances. Checks first what holds for suspended clients, then that all make progress, then the quiet state.
    pub(super) fn end_round(
        &mut self,
        findings: &mut Findings,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        let Self { tenants, node, suspensions, round, .. } = self;
        if let Some((disturbances, _)) = round.take() {
            disturbances.undo_all(node, tenants, interrupts)?;
        }
        suspensions.check_settled(node, findings, interrupts)?;
        suspensions.resume_all(node)?;
        checks::progress(node, tenants, findings, interrupts)?;
        checks::quiet(node, tenants, findings, interrupts)
    }

    /// Ends everything but the simulator.
    pub(super) fn end(&mut self, findings: &mut Findings, interrupts: &Interrupts) -> anyhow::Result<()> {
        checks::end(&mut self.node, &mut self.tenants, findings, interrupts)
    }
}
