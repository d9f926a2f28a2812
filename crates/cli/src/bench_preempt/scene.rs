//! The processes of a level: two that know nothing of Sluice, and two under it.

use sluice_load::driver::Driver;

use super::Arguments;
use super::actor::Actor;
use super::clock::Clock;
use super::level::Level;
use super::mps::Mps;
use crate::bench::Gpu;
use crate::stage::{Setting, Stage};
use anyhow::{Context, bail};

/// Two latency-critical ones would share slices, so there is one: hints are by call only.
const HINTS: &str = "api";
const CLIENTS: &str = "clients:\n  - { name: be, request: 0.5, limit: 1.0, memory: 8589934592 }\n  \
    - { name: lc, request: 0.5, limit: 1.0, memory: 8589934592, class: latency-critical }\n";

/// Everybody on stage; dropped in order: processes, manager, MPS.
#[derive(Debug)]
pub(super) struct Scene {
    /// Requests without Sluice.
    pub(super) plain_lc: Actor,
    /// Kernels without Sluice.
    pub(super) plain_be: Actor,
    /// Requests under the hook.
    pub(super) lc: Actor,
    /// Kernels under the hook.
    pub(super) be: Actor,
    /// Requests and kernels under the MPS server, without the hook.
    pub(super) shared: Option<(Actor, Actor)>,
    /// The manager and the GPU.
    pub(super) stage: Stage,
    /// The level that was asked for.
    pub(super) level: Level,
    /// Name of the GPU.
    pub(super) device: String,
    _mps: Option<Mps>,
}

impl Scene {
    /// Starts everybody.
    ///
    /// # Errors
    /// If this level cannot be had here, or somebody does not start.
    pub(super) fn set(flags: &Arguments, level: Level, clock: &Clock<'_>) -> anyhow::Result<Self> {
        let simulated = flags.gpu == Gpu::Sim;
        if simulated && level == Level::MpsGate {
            bail!("the simulated GPU has no MPS");
        }
        let mut manager_flags = level.manager_flags(simulated);
        manager_flags.extend(flags.manager_flag.iter().cloned());
        if !simulated {
            // Said here, once, rather than by a child.
            Driver::open().and_then(|driver| driver.device_count()).context("there is no real GPU to use")?;
        }
        let mps = if level == Level::MpsGate { Some(Mps::start()?) } else { None };
        let setting = Setting { simulated, resource_file: CLIENTS.to_owned(), manager_flags };
        let stage = Stage::build(setting, || clock.pause())?;
        let start = |name: &str, client: Option<&str>, mps: Option<&Mps>| {
            let mut command = stage.program();
            command.arg("bench");
            if name.ends_with("lc") {
                let (kernels, us) = (flags.lc_kernels.to_string(), flags.lc_kernel_us.to_string());
                command.args(["preempt-lc", "--kernels", &kernels, "--kernel-us", &us]);
            } else {
                command.arg("preempt-be").args(level.best_effort_flags());
            }
            stage.show_gpu(&mut command, name);
            if let Some(client) = client {
                stage.preload(&mut command, client);
                command.env("SLUICE_HINTS", HINTS);
            }
            if let Some(mps) = mps {
                mps.show(&mut command);
            }
            Actor::start(&stage, name, command, client.is_some(), clock)
        };
        let plain_lc = start("plain-lc", None, None)?;
        let plain_be = start("plain-be", None, None)?;
        let be = start("be", Some("be"), mps.as_ref())?;
        let lc = start("lc", Some("lc"), mps.as_ref())?;
        let shared = match mps.as_ref() {
            Some(mps) => Some((start("mps-lc", None, Some(mps))?, start("mps-be", None, Some(mps))?)),
            None => None,
        };
        let device = lc.device.clone();
        Ok(Self { plain_lc, plain_be, lc, be, shared, stage, level, device, _mps: mps })
    }
}
