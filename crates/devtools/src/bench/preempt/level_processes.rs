//! The processes of a level: two without the hook and two under it, and the level's own MPS server.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_load::driver::Driver;
use sluice_test_bed::{TestBed, TestBedOptions};
use tempfile::TempDir;

use super::super::{Gpu, start_bed, worker_command};
use super::generator::Generator;
use super::preemption_level::PreemptionLevel;
use super::{Arguments, TimeLimit};

/// Two latency-critical clients would share slices, so there is one. Hints come by API call only.
const HINTS: &str = "api";
const CLIENTS: &str = "clients:\n  - { name: be, request: 0.5, limit: 1.0, memory: 8589934592 }\n  \
    - { name: lc, request: 0.5, limit: 1.0, memory: 8589934592, class: latency-critical }\n";

/// All processes of a level; dropped in order: generators, manager, MPS server.
#[derive(Debug)]
pub(super) struct LevelProcesses {
    /// Requests without Sluice.
    pub(super) plain_lc: Generator,
    /// Kernels without Sluice.
    pub(super) plain_be: Generator,
    /// Requests under the hook.
    pub(super) lc: Generator,
    /// Kernels under the hook.
    pub(super) be: Generator,
    /// Requests and kernels under the MPS server, without the hook.
    pub(super) shared: Option<(Generator, Generator)>,
    pub(super) bed: TestBed,
    pub(super) level: PreemptionLevel,
    _mps: Option<MpsServer>,
}

impl LevelProcesses {
    /// Starts all processes. Fails if the machine does not have this level.
    pub(super) fn start(
        flags: &Arguments,
        level: PreemptionLevel,
        limit: &TimeLimit<'_>,
    ) -> anyhow::Result<Self> {
        let simulated = flags.gpu == Gpu::Sim;
        if simulated && level == PreemptionLevel::MpsGate {
            bail!("the simulated GPU has no MPS");
        }
        let mut manager_flags = level.manager_flags(simulated);
        manager_flags.extend(flags.manager_flag.iter().cloned());
        if !simulated {
            // Reported here once, not by each child.
            Driver::open().and_then(|driver| driver.device_count()).context("there is no real GPU to use")?;
        }
        let mps = if level == PreemptionLevel::MpsGate { Some(MpsServer::start()?) } else { None };
        let options = TestBedOptions {
            simulated,
            resource_file: CLIENTS.to_owned(),
            manager_flags,
            ..TestBedOptions::default()
        };
        let bed = start_bed(options, || limit.pause())?;
        let start = |name: &str, client: Option<&str>, mps: Option<&MpsServer>| {
            let is_lc = name.ends_with("lc");
            let mut command = worker_command(if is_lc { "preempt-lc" } else { "preempt-be" })?;
            if is_lc {
                let (kernels, us) = (flags.lc_kernels.to_string(), flags.lc_kernel_us.to_string());
                command.args(["--kernels", &kernels, "--kernel-us", &us]);
            } else {
                command.args(level.best_effort_flags());
            }
            bed.set_gpu(&mut command, name);
            if let Some(client) = client {
                bed.set_hook(&mut command, client);
                command.env("SLUICE_HINTS", HINTS);
            }
            if let Some(mps) = mps {
                mps.set_server(&mut command);
            }
            Generator::start(&bed, name, command, client.is_some(), limit)
        };
        let plain_lc = start("plain-lc", None, None)?;
        let plain_be = start("plain-be", None, None)?;
        let be = start("be", Some("be"), mps.as_ref())?;
        let lc = start("lc", Some("lc"), mps.as_ref())?;
        let shared = match mps.as_ref() {
            Some(mps) => Some((start("mps-lc", None, Some(mps))?, start("mps-be", None, Some(mps))?)),
            None => None,
        };
        Ok(Self { plain_lc, plain_be, lc, be, shared, bed, level, _mps: mps })
    }
}

const MPS_CONTROL: &str = "nvidia-cuda-mps-control";
/// How long the MPS server may take to end; its clients have ended by then.
const MPS_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A private MPS server, identified by its folder. It ends when this is dropped.
#[derive(Debug)]
struct MpsServer(TempDir);

impl MpsServer {
    /// Starts the control daemon, which starts servers for clients.
    fn start() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sluice-mps-").tempdir().context("cannot make a directory");
        let mps = Self(dir?);
        let status = mps.control().arg("-d").stdin(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot start {MPS_CONTROL}"))?;
        if !status.success() {
            bail!("{MPS_CONTROL} ended with {status}");
        }
        Ok(mps)
    }

    /// Tells a command where the server is.
    fn set_server(&self, command: &mut Command) {
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.0.path()).env("CUDA_MPS_LOG_DIRECTORY", self.0.path());
    }

    fn control(&self) -> Command {
        let mut command = Command::new(MPS_CONTROL);
        self.set_server(&mut command);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for MpsServer {
    fn drop(&mut self) {
        let Ok(mut child) = self.control().stdin(Stdio::piped()).spawn() else { return };
        if let Some(mut input) = child.stdin.take() {
            let _ = input.write_all(b"quit\n");
        }
        let until = Instant::now() + MPS_END_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        // A child that has ended is not killed.
        let _ = child.kill();
    }
}
