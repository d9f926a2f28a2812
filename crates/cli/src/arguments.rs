//! The command line: one variant per subcommand, each handled by a module of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{bench, commands, demo, doctor, hold, signals};

/// Share one GPU between processes: time by token, memory to the byte.
#[derive(Debug, Parser)]
#[command(name = "sluice", version)]
pub(crate) struct Arguments {
    /// End with the process of this id, which started this one.
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<i32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show it: three tenants share a GPU, simulated or real, and every claim is checked
    Demo(demo::Arguments),
    /// Run the daemon that hands out the GPU: tokens, memory limits, metrics
    PodManager(Box<commands::pod_manager::Arguments>),
    /// Run a Kubernetes node's part: GPUs, kubelet's device plugin, limits, pod-managers, metrics
    #[cfg(feature = "cluster")]
    NodeAgent(commands::node_agent::Arguments),
    /// Run the scheduler extender that picks the GPU of each pod
    #[cfg(feature = "cluster")]
    Scheduler(commands::scheduler::Arguments),
    /// Run the admission webhook that reads the pods' annotations
    #[cfg(feature = "cluster")]
    Webhook(commands::webhook::Arguments),
    /// Run a simulated GPU, or ask one what it has done
    Sim(commands::sim::Arguments),
    /// Generate GPU load, best-effort or latency-critical, and print JSON lines
    Load(commands::load::Arguments),
    /// From inside a pod, check that its GPU, its memory limit and the daemons are what was promised
    Check(commands::check::Arguments),
    /// Find out what this machine and its driver can do: each control is tried, and judged by its effect
    Doctor(doctor::Arguments),
    /// Take programs off the GPU that know nothing of Sluice, or have them take turns
    Hold(hold::Arguments),
    /// Prove once per GPU, driver and boot what the driver's controls do, for `pod-manager --self-test`
    SelfTest(doctor::selftest::Arguments),
    /// A part of the doctor that touches the driver
    #[command(hide = true)]
    DoctorChild(doctor::child::Arguments),
    /// Measure what Sluice costs
    Bench(bench::Arguments),
}

impl Arguments {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(parent) = self.parent {
            signals::end_with_parent(parent)?;
        }
        match self.command {
            Command::Demo(arguments) => demo::run(&arguments),
            Command::PodManager(arguments) => commands::pod_manager::run(&arguments),
            #[cfg(feature = "cluster")]
            Command::NodeAgent(arguments) => commands::node_agent::run(arguments),
            #[cfg(feature = "cluster")]
            Command::Scheduler(arguments) => commands::scheduler::run(arguments),
            #[cfg(feature = "cluster")]
            Command::Webhook(arguments) => commands::webhook::run(arguments),
            Command::Sim(arguments) => commands::sim::run(&arguments),
            Command::Load(arguments) => commands::load::run(&arguments),
            Command::Check(arguments) => commands::check::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Hold(arguments) => hold::run(&arguments),
            Command::SelfTest(arguments) => doctor::selftest::run(&arguments),
            Command::DoctorChild(arguments) => doctor::child::run(&arguments),
            Command::Bench(arguments) => bench::run(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
