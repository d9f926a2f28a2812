//! What a node of the soak gives to the processes of its clients.

use std::path::PathBuf;
use std::process::Command;

use sluice_test_bed::{Metrics, SimulatedGpu};

use super::clients::Client;

/// A node of which clients have processes.
pub(super) trait TenantNode {
    /// Its clients. A tenant names its client by the position here.
    fn clients(&self) -> &'static [Client];

    /// A process of a client, under the hook.
    fn tenant_command(&self, client: usize, seed: u64) -> anyhow::Result<Command>;

    /// Where its logs are.
    fn folder(&self) -> PathBuf;

    /// The simulated GPU.
    fn gpu(&self) -> SimulatedGpu;

    /// The manager's metrics, if it serves them.
    fn metrics(&self) -> Option<Metrics>;
}
