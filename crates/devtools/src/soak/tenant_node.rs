//! What a node of the soak gives to the processes of its clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use sluice_test_bed::{Metrics, Process, SimulatedGpu, TestBed};

use super::clients::Client;

/// A node of which clients have processes.
pub(super) trait TenantNode {
    /// Its clients. A tenant names its client by the position here.
    fn clients(&self) -> &'static [Client];

    /// Its processes.
    fn bed(&self) -> &TestBed;

    /// A process of a client, under the hook.
    fn tenant_command(&self, client: usize, seed: u64) -> anyhow::Result<Command>;

    /// The manager's metrics, if it serves them.
    fn metrics(&self) -> Option<Metrics>;

    /// What [`Self::tenant_command`] is on each node.
    fn hooked_command(&self, client: usize, threads: u32, seed: u64) -> anyhow::Result<Command> {
        let (client, bed) = (&self.clients()[client], self.bed());
        let mut command = Process::command(&this_program()?);
        command.args(["soak-tenant", "--threads", &threads.to_string(), "--seed", &seed.to_string()]);
        if client.children {
            command.arg("--children");
        }
        if client.pools {
            command.arg("--pools");
        }
        bed.set_gpu(&mut command, client.name);
        bed.set_hook(&mut command, client.name);
        command.env("TMPDIR", bed.path().join("tmp")).env("SLUICE_ON_MANAGER_LOSS", "closed");
        command.env("SLUICE_LOG", self.hook_log());
        Ok(command)
    }

    /// The log of all hooks; each line names its process.
    fn hook_log(&self) -> PathBuf {
        self.bed().path().join("hooks.log")
    }

    /// Where its logs are.
    fn folder(&self) -> PathBuf {
        self.bed().path().to_path_buf()
    }

    /// Copies all logs.
    fn copy_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.bed().copy_logs(to)
    }

    /// The simulated GPU.
    fn gpu(&self) -> SimulatedGpu {
        self.bed().gpu()
    }
}

/// The path of this program, which is also the tenants'.
pub(super) fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's path")
}
