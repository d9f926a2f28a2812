//! The command line: one variant for each subcommand. A module of the same name, or the crate of the daemon, handles it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{commands, demo, doctor, hold};

/// Share one GPU between processes: time by token, memory to the byte.
#[derive(Debug, Parser)]
#[command(name = "sluice", version)]
pub(crate) struct Arguments {
    /// End with the process of this id, which started this one
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<i32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run three tenants on a GPU, simulated or real, and check every promise
    Demo(demo::Arguments),
    /// Run the daemon that shares a GPU: tokens, memory limits, metrics
    PodManager(Box<commands::pod_manager::Arguments>),
    /// Run a Kubernetes node's part: GPUs, kubelet's device plugin, limits, pod-managers, metrics
    #[cfg(feature = "cluster")]
    NodeAgent(sluice_node_agent::Arguments),
    /// Run the scheduler extender that picks the GPU of each pod
    #[cfg(feature = "cluster")]
    Scheduler(sluice_scheduler::extender::Arguments),
    /// Run the admission webhook that reads the pods' annotations
    #[cfg(feature = "cluster")]
    Webhook(sluice_scheduler::webhook::Arguments),
    /// Run a simulated GPU, or print its ledger
    Sim(commands::sim::Arguments),
    /// Generate GPU load, best-effort or latency-critical, and print JSON lines
    Load(commands::load::Arguments),
    /// From inside a pod, check its GPU, its memory limit and the daemons
    Check(commands::check::Arguments),
    /// Examine this machine and its driver: try each driver control and judge it by its effect
    Doctor(doctor::Arguments),
    /// Stop programs without the hook on the GPU, or schedule them by quanta
    Hold(hold::Arguments),
    /// Test the driver's controls once per GPU, driver and boot, for `pod-manager --self-test`
    SelfTest(doctor::self_test::Arguments),
    /// A part of the doctor that uses the driver
    #[command(hide = true)]
    DoctorChild(doctor::child::Arguments),
}

impl Arguments {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(parent) = self.parent {
            sluice_test_bed::end_with_parent(parent)?;
        }
        match self.command {
            Command::Demo(arguments) => demo::run(&arguments),
            Command::PodManager(arguments) => commands::pod_manager::run(&arguments),
            #[cfg(feature = "cluster")]
            Command::NodeAgent(arguments) => commands::daemon(sluice_node_agent::run(arguments)),
            #[cfg(feature = "cluster")]
            Command::Scheduler(arguments) => commands::daemon(sluice_scheduler::extender::run(arguments)),
            #[cfg(feature = "cluster")]
            Command::Webhook(arguments) => commands::daemon(sluice_scheduler::webhook::run(arguments)),
            Command::Sim(arguments) => commands::sim::run(&arguments),
            Command::Load(arguments) => commands::load::run(&arguments),
            Command::Check(arguments) => commands::check::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Hold(arguments) => hold::run(&arguments),
            Command::SelfTest(arguments) => doctor::self_test::run(&arguments),
            Command::DoctorChild(arguments) => doctor::child::run(&arguments),
        }
    }
}

#[cfg(test)]
mod tests;
