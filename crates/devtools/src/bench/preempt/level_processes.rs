//! The processes of a level: two without the hook and two under it.

use anyhow::Context;
use sluice_load::driver::Driver;
use sluice_test_bed::{TestBed, TestBedOptions};

use super::super::{Gpu, start_bed, worker_command};
use super::generator::Generator;
use super::preemption_level::PreemptionLevel;
use super::{Arguments, TimeLimit};

/// Two latency-critical clients would share slices, so there is one. Hints come by API call only.
const HINTS: &str = "api";
const CLIENTS: &str = "clients:\n  - { name: be, request: 0.5, limit: 1.0, memory: 8589934592 }\n  \
    - { name: lc, request: 0.5, limit: 1.0, memory: 8589934592, class: latency-critical }\n";

/// All processes of a level; dropped in order: generators, manager.
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
    pub(super) bed: TestBed,
    pub(super) level: PreemptionLevel,
}

impl LevelProcesses {
    /// Starts all processes. Fails if the machine does not have this level.
    pub(super) fn start(
        flags: &Arguments,
        level: PreemptionLevel,
        limit: &TimeLimit<'_>,
    ) -> anyhow::Result<Self> {
        let simulated = flags.gpu == Gpu::Sim;
        let mut manager_flags = level.manager_flags(simulated);
        manager_flags.extend(flags.manager_flag.iter().cloned());
        if !simulated {
            // Reported here once, not by each child.
            Driver::open().and_then(|driver| driver.device_count()).context("there is no real GPU to use")?;
        }
        let options = TestBedOptions {
            simulated,
            resource_file: CLIENTS.to_owned(),
            manager_flags,
            ..TestBedOptions::default()
        };
        let bed = start_bed(options, || limit.pause())?;
        let start = |name: &str, client: Option<&str>| {
            let is_lc = name.ends_with("lc");
            let mut command = worker_command(if is_lc { "preempt-lc" } else { "preempt-be" })?;
            if is_lc {
                let (kernels, us) = (flags.lc_kernels.to_string(), flags.lc_kernel_us.to_string());
                command.args(["--kernels", &kernels, "--kernel-us", &us]);
            }
            bed.set_gpu(&mut command, name);
            if let Some(client) = client {
                bed.set_hook(&mut command, client);
                command.env("SLUICE_HINTS", HINTS);
            }
            Generator::start(&bed, name, command, client.is_some(), limit)
        };
        let plain_lc = start("plain-lc", None)?;
        let plain_be = start("plain-be", None)?;
        let be = start("be", Some("be"))?;
        let lc = start("lc", Some("lc"))?;
        Ok(Self { plain_lc, plain_be, lc, be, bed, level })
    }
}
