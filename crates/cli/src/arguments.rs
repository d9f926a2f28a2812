//! The command line: one variant for each subcommand. A module of the same name, or the crate of the daemon, handles it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    check, demo, doctor, load, lock_helper, pod_manager, policy, release, serve as models_server, sim,
    suspend, trace,
};

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
    PodManager(Box<pod_manager::Arguments>),
    /// Check a policy file of the pod-manager, or print its JSON schema
    Policy(policy::Arguments),
    /// Run a Kubernetes node's part: GPUs, kubelet's device plugin, limits, pod-managers, metrics
    #[cfg(feature = "cluster")]
    NodeAgent(Box<sluice_node_agent::Arguments>),
    /// Run the scheduler extender that picks the GPU of each pod
    #[cfg(feature = "cluster")]
    Scheduler(sluice_scheduler::extender::Arguments),
    /// Run the admission webhook that reads the pods' annotations
    #[cfg(feature = "cluster")]
    Webhook(sluice_scheduler::webhook::Arguments),
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    Kubectl(sluice_kubectl::Command),
    /// Suspend a client of a resource file: it gets no time, and memory that may leave the GPU does
    Suspend(suspend::Arguments),
    /// Resume a suspended client of a resource file
    Resume(suspend::Arguments),
    /// Run a simulated GPU, or print its ledger
    Sim(sim::Arguments),
    /// Record what a pod-manager decides and what follows, for some seconds, as a file for Perfetto
    Trace(trace::Arguments),
    /// Generate GPU load, best-effort or latency-critical, and print JSON lines
    #[command(subcommand)]
    Load(load::Load),
    /// Serve models of PyTorch in one process: starts `python3 -m sluice.serve`
    Serve(models_server::Arguments),
    /// From inside a pod, check its GPU, its memory limit and the daemons
    Check(check::Arguments),
    /// Examine this machine and its driver: try each driver control and judge it by its effect
    Doctor(doctor::Arguments),
    /// Release programs that a pod-manager has left stopped on the GPU
    Release(release::Arguments),
    /// Make the driver's locks for a pod-manager
    #[command(hide = true)]
    LockHelper,
    /// Test the driver's controls once per GPU, driver and boot, for `pod-manager --self-test`
    SelfTest(doctor::self_test::Arguments),
    /// A part of the doctor that uses the driver
    #[command(subcommand, hide = true)]
    DoctorChild(doctor::child::Part),
}

impl Arguments {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        sluice_test_bed::end_with_parent(self.parent)?;
        match self.command {
            Command::Demo(arguments) => return demo::run(&arguments),
            Command::Doctor(arguments) => return doctor::run(&arguments),
            Command::SelfTest(arguments) => return doctor::self_test::run(&arguments),
            Command::PodManager(arguments) => pod_manager::run(&arguments)?,
            Command::Policy(arguments) => policy::run(&arguments)?,
            #[cfg(feature = "cluster")]
            Command::NodeAgent(arguments) => serve(|stop| sluice_node_agent::run(*arguments, stop))?,
            #[cfg(feature = "cluster")]
            Command::Scheduler(arguments) => serve(|stop| sluice_scheduler::extender::run(arguments, stop))?,
            #[cfg(feature = "cluster")]
            Command::Webhook(arguments) => serve(|stop| sluice_scheduler::webhook::run(arguments, stop))?,
            #[cfg(feature = "cluster")]
            Command::Kubectl(command) => command.run()?,
            Command::Suspend(arguments) => suspend::run(&arguments, true)?,
            Command::Resume(arguments) => suspend::run(&arguments, false)?,
            Command::Sim(arguments) => sim::run(&arguments)?,
            Command::Trace(arguments) => trace::run(&arguments)?,
            Command::Load(generator) => load::run(&generator)?,
            Command::Serve(arguments) => models_server::run(&arguments)?,
            Command::Check(arguments) => check::run(&arguments)?,
            Command::Release(arguments) => release::run(&arguments)?,
            Command::LockHelper => lock_helper::run()?,
            Command::DoctorChild(part) => doctor::child::run(&part)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs a daemon to its end. Its token is cancelled by SIGTERM or SIGINT. SIGHUP changes nothing: by custom it has a daemon read its
/// configuration again, and these daemons have only their flags.
#[cfg(feature = "cluster")]
fn serve<D: Future<Output = anyhow::Result<()>>>(
    daemon: impl FnOnce(tokio_util::sync::CancellationToken) -> D,
) -> anyhow::Result<()> {
    use anyhow::Context;
    use tokio::signal::unix::{SignalKind, signal};

    crate::start_log()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().build().context("cannot start tokio")?.block_on(async {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        // Handled, not ignored: a child would inherit that SIGHUP is ignored.
        let mut hangup = listen(SignalKind::hangup())?;
        let stop = tokio_util::sync::CancellationToken::new();
        let cancel = stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = hangup.recv() => tracing::info!("SIGHUP changes nothing: the configuration is in the flags"),
                }
            }
            tracing::info!("received a signal to end");
            cancel.cancel();
        });
        daemon(stop).await
    })
}

#[cfg(test)]
mod tests;
