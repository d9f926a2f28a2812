//! Random kills and stops of processes.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_load::random_calls::Random;
use sluice_test_bed::Interrupts;

use super::node::SoakNode;
use super::report::Findings;
use super::schedule::{Schedule, resume};
use super::tenants::Tenants;

/// What may be disturbed in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Targets {
    /// Tenants are killed and stopped.
    Tenants,
    /// Daemons are stopped too.
    StopsOfDaemons,
    /// Daemons are also killed.
    All,
}

/// One disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    KillTenant,
    StopTenant,
    StopManager,
    StopAgent,
    KillManager,
    KillAgent,
}

/// What ends a disturbance.
enum Undo {
    /// The process with this id runs again.
    Resume(i32),
    /// A daemon that was killed is started again.
    StartDaemon,
}

/// The disturbances of a round.
pub(super) struct Disturbances {
    targets: Targets,
    schedule: Schedule<Undo>,
    /// A daemon is killed once a round: the agent delays restarts that follow each other.
    has_killed_daemon: bool,
}

impl Disturbances {
    pub(super) fn new(targets: Targets, random: Random) -> Self {
        Self { targets, schedule: Schedule::new(random), has_killed_daemon: false }
    }

    /// Makes and ends the disturbances that are due.
    pub(super) fn proceed(
        &mut self,
        node: &mut SoakNode,
        tenants: &mut Tenants,
        findings: &mut Findings,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        for undo in self.schedule.take_due() {
            undo_one(undo, node, interrupts)?;
        }
        if self.schedule.is_next_due(200, 900) {
            let kind = self.choose();
            self.disturb(kind, node, tenants, findings)?;
        }
        Ok(())
    }

    /// Ends all disturbances, and waits until the manager serves.
    pub(super) fn undo_all(
        self,
        node: &mut SoakNode,
        tenants: &mut Tenants,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        for undo in self.schedule.into_undos() {
            undo_one(undo, node, interrupts)?;
        }
        tenants.resume_all();
        node.start_missing(interrupts)?;
        node.wait_until_serving(interrupts)
    }

    fn choose(&mut self) -> Kind {
        let number = self.schedule.random.below(100);
        match self.targets {
            Targets::All if number < 10 => Kind::KillManager,
            Targets::All if number < 16 => Kind::KillAgent,
            Targets::All | Targets::StopsOfDaemons if number < 30 => Kind::StopManager,
            Targets::All | Targets::StopsOfDaemons if number < 40 => Kind::StopAgent,
            _ if number < 65 => Kind::KillTenant,
            _ => Kind::StopTenant,
        }
    }

    fn disturb(
        &mut self,
        kind: Kind,
        node: &mut SoakNode,
        tenants: &mut Tenants,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let index = self.schedule.random.index(tenants.all.len());
        match kind {
            Kind::KillTenant => {
                tenants.replace(node, index)?;
                findings.count_disturbance("tenants killed");
            }
            Kind::StopTenant => {
                let time = self.schedule.between(50, 2_500);
                self.schedule.end_after(time, Undo::Resume(tenants.all[index].stop()));
                findings.count_disturbance("tenants stopped");
            }
            Kind::StopManager => {
                let time = self.schedule.between(50, 1_500);
                if self.stop(node.manager_pid(), time) {
                    findings.count_disturbance("managers stopped");
                }
            }
            Kind::StopAgent => {
                let time = self.schedule.between(50, 2_000);
                if self.stop(node.agent_pid(), time) {
                    findings.count_disturbance("agents stopped");
                }
            }
            Kind::KillManager | Kind::KillAgent if self.has_killed_daemon => {}
            Kind::KillManager => {
                self.has_killed_daemon = true;
                node.kill_manager();
                findings.count_disturbance("managers killed");
                self.start_daemon_later();
            }
            Kind::KillAgent if node.agent_pid().is_none() => {}
            Kind::KillAgent => {
                self.has_killed_daemon = true;
                node.kill_agent();
                findings.count_disturbance("agents killed");
                self.start_daemon_later();
            }
        }
        Ok(())
    }

    fn start_daemon_later(&mut self) {
        let time = self.schedule.between(100, 1_200);
        self.schedule.end_after(time, Undo::StartDaemon);
    }

    fn stop(&mut self, pid: Option<i32>, time: Duration) -> bool {
        let Some(pid) = pid else { return false };
        let is_stopped = kill(Pid::from_raw(pid), Signal::SIGSTOP).is_ok();
        if is_stopped {
            self.schedule.end_after(time, Undo::Resume(pid));
        }
        is_stopped
    }
}

fn undo_one(undo: Undo, node: &mut SoakNode, interrupts: &Interrupts) -> anyhow::Result<()> {
    match undo {
        Undo::Resume(pid) => resume(pid),
        Undo::StartDaemon => node.start_missing(interrupts)?,
    }
    Ok(())
}
