//! Random suspensions and resumptions of clients, and kills and stops of processes, while memory moves.

use nix::sys::signal::Signal;
use sluice_load::random_calls::Random;
use sluice_test_bed::Interrupts;

use super::super::disturbances::Targets;
use super::super::report::Findings;
use super::super::schedule::{Schedule, resume};
use super::super::tenants::Tenants;
use super::node::{CLIENTS, OvercommittedNode};
use super::suspensions::Suspensions;

/// What ends a disturbance.
enum Undo {
    /// The tenant with this id runs again.
    Resume(i32),
    /// The manager that was stopped runs again.
    ResumeManager,
    /// The manager that was killed is started again.
    StartManager,
}

/// The disturbances of a round.
pub(super) struct Disturbances {
    targets: Targets,
    schedule: Schedule<Undo>,
    /// The manager is killed once a round, so that one manager decides about several moves.
    has_killed_manager: bool,
}

impl Disturbances {
    pub(super) fn new(targets: Targets, random: Random) -> Self {
        Self { targets, schedule: Schedule::new(random), has_killed_manager: false }
    }

    /// Makes and ends the disturbances that are due.
    pub(super) fn proceed(
        &mut self,
        node: &mut OvercommittedNode,
        tenants: &mut Tenants,
        suspensions: &mut Suspensions,
        findings: &mut Findings,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        for undo in self.schedule.take_due() {
            undo_one(undo, node, interrupts)?;
        }
        if self.schedule.is_next_due(200, 1_000) {
            self.disturb(node, tenants, suspensions, findings)?;
        }
        Ok(())
    }

    /// Ends all disturbances but the suspensions, and waits until the manager serves.
    pub(super) fn undo_all(
        self,
        node: &mut OvercommittedNode,
        tenants: &mut Tenants,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        for undo in self.schedule.into_undos() {
            undo_one(undo, node, interrupts)?;
        }
        tenants.resume_all();
        node.start_missing(interrupts)
    }

    fn disturb(
        &mut self,
        node: &mut OvercommittedNode,
        tenants: &mut Tenants,
        suspensions: &mut Suspensions,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let may_kill_manager = self.targets == Targets::All && !self.has_killed_manager;
        let may_stop_manager = self.targets != Targets::Tenants && node.manager_pid().is_some();
        let index = self.schedule.random.index(tenants.all.len());
        match self.schedule.random.below(100) {
            0..15 if may_kill_manager => {
                self.has_killed_manager = true;
                node.kill_manager();
                suspensions.manager_disturbed();
                // Shorter and longer than the time after which memory returns by itself.
                let time = self.schedule.between(50, 2_000);
                self.schedule.end_after(time, Undo::StartManager);
                findings.count_disturbance("managers killed beside moves");
            }
            0..25 if may_stop_manager => {
                node.signal_manager(Signal::SIGSTOP)?;
                suspensions.manager_disturbed();
                let time = self.schedule.between(50, 1_500);
                self.schedule.end_after(time, Undo::ResumeManager);
                findings.count_disturbance("managers stopped beside moves");
            }
            0..65 => {
                let client = CLIENTS[self.schedule.random.index(CLIENTS.len())].name;
                if suspensions.toggle(node, client)? {
                    findings.count_disturbance("clients suspended");
                }
            }
            65..80 => {
                tenants.replace(node, index)?;
                findings.count_disturbance("tenants killed beside moves");
            }
            _ => {
                let time = self.schedule.between(50, 2_500);
                self.schedule.end_after(time, Undo::Resume(tenants.all[index].stop()));
                findings.count_disturbance("tenants stopped beside moves");
            }
        }
        Ok(())
    }
}

fn undo_one(undo: Undo, node: &mut OvercommittedNode, interrupts: &Interrupts) -> anyhow::Result<()> {
    match undo {
        Undo::Resume(pid) => resume(pid),
        // It may have been killed meanwhile.
        Undo::ResumeManager if node.manager_pid().is_none() => {}
        Undo::ResumeManager => node.signal_manager(Signal::SIGCONT)?,
        Undo::StartManager => node.start_missing(interrupts)?,
    }
    Ok(())
}
