//! A GPU with three clients of one process each, and the manager's adapter between ledger, channel-group scheduler and
//! processes.

use super::bugs::Bug;
use super::process::{Page, Process, Wait};
use crate::simulated_gpu::{Arrivals, MS, S, TenantSpec, client_spec, ledger_policy};
use sluice_core::channel_groups::{
    Activity, ChannelGroupPolicy, ChannelGroupScheduler, Control, ControlOp, ControlOutcome, GroupId, Setting,
};
use sluice_core::ledger::{Action, Class, Deadline, GrantRequest, Policy, ReturnKind, TokenLedger};
use sluice_core::quota::QuotaPolicy;
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;

pub(super) const PROCESSES: usize = 3;
/// One step of time. A control takes at most as long.
pub(super) const TICK: u64 = 10 * MS;
/// The time at which the model begins.
pub(super) const S_START: u64 = S;
pub(super) const QUANTUM: u64 = 20 * MS;
pub(super) const REQUESTS: [f64; PROCESSES] = [0.5, 0.3, 0.2];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) ledger: TokenLedger,
    pub(super) scheduler: ChannelGroupScheduler,
    pub(super) processes: [Process; PROCESSES],
    /// The setting of each process's group on the GPU.
    pub(super) groups: [Option<Setting>; PROCESSES],
    pub(super) flight: Option<Control>,
    /// A tick has passed since the control in flight began.
    pub(super) flight_is_late: bool,
    /// For so many ticks the manager makes no step.
    pub(super) stopped: u8,
    pub(super) now: u64,
    /// A process was granted what it held already, or beside another client.
    pub(super) granted_twice: bool,
    pub(super) bug: Bug,
}

pub(super) fn id(index: usize) -> ProcessId {
    ProcessId(index as u64)
}

pub(super) fn client(index: usize) -> ClientId {
    ClientId(index as u64)
}

fn group(index: usize) -> GroupId {
    GroupId(index as u64)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Times in the proportion of the real ones, with a quantum of two ticks.
fn policy() -> Policy {
    let quota = QuotaPolicy { base_ns: QUANTUM, min_ns: QUANTUM, cap_ns: QUANTUM, limit_period_ns: S };
    Policy {
        quota,
        return_timeout_ns: S,
        quantum_ns: QUANTUM,
        min_quantum_ns: QUANTUM,
        extend_ahead_ns: TICK,
        longest_extended_ns: 4 * QUANTUM,
        // One client at a time: the property is about the hand-offs.
        short_grant_ns: 0,
        ..ledger_policy()
    }
}

/// Ledger and scheduler of a new manager. Controls are earned at once.
fn new_manager() -> (TokenLedger, ChannelGroupScheduler) {
    let groups = ChannelGroupPolicy {
        control_ns: 1,
        // A probe takes a tick instead of 3 ms.
        waiting_probe_ns: 10 * QUANTUM,
        ..ChannelGroupPolicy::default()
    };
    (TokenLedger::new(policy()), ChannelGroupScheduler::new(groups))
}

impl World {
    /// Processes of these classes; those of which the groups are announced are hardware-scheduled.
    pub(super) fn new(classes: [Class; PROCESSES], hardware: [bool; PROCESSES], bug: Bug) -> Self {
        let process = |class| Process {
            class,
            alive: true,
            work: class != Class::LatencyCritical,
            wait: Wait::None,
            host_bound: false,
            hardware_scheduled: false,
            page: Page::Closed,
            frozen: 0,
            since: S,
            used_ns: 0,
            returns: None,
            requests: false,
        };
        let (ledger, scheduler) = new_manager();
        let mut world = Self {
            ledger,
            scheduler,
            processes: classes.map(process),
            groups: hardware.map(|hardware| hardware.then_some(Setting::FREE)),
            flight: None,
            flight_is_late: false,
            stopped: 0,
            now: S,
            granted_twice: false,
            bug,
        };
        world.attach();
        world
    }

    /// A new manager takes the place of the one that died. The processes attach again.
    pub(super) fn restart_manager(&mut self) {
        (self.ledger, self.scheduler) = new_manager();
        (self.flight, self.stopped) = (None, 0);
        for process in &mut self.processes {
            (process.page, process.hardware_scheduled) = (Page::Closed, false);
            (process.returns, process.requests) = (None, false);
        }
        self.attach();
    }

    /// Adds all living processes to ledger and scheduler.
    fn attach(&mut self) {
        for index in 0..PROCESSES {
            if !self.processes[index].alive {
                continue;
            }
            self.set_client(index, index);
            self.ledger.add_process(id(index), client(index), ReturnKind::Returns).unwrap();
            if self.groups[index].is_some() {
                let owner = (client(index), self.processes[index].class);
                let groups = (vec![group(index)], &BTreeSet::new());
                self.scheduler.announce(id(index), owner, groups, &mut self.ledger, self.now);
            }
        }
        self.manage();
    }

    /// Gives the ledger the specification of a client, or by mistake that of another one.
    fn set_client(&mut self, index: usize, of: usize) {
        let class = self.processes[index].class;
        let tenant = TenantSpec { request: REQUESTS[of], limit: 1.0, class, arrivals: Arrivals::Saturating };
        self.ledger.set_client(client(index), client_spec(&tenant), self.now);
        self.scheduler.set_class(client(index), class, &mut self.ledger, self.now);
    }

    fn is_critical(&self, index: usize) -> bool {
        self.processes[index].class == Class::LatencyCritical
    }

    pub(super) fn is_enabled(&self, index: usize) -> bool {
        self.groups[index].is_none_or(|setting| setting.enabled)
    }

    /// Whether a process has work that needs the GPU, now or once its stream goes on.
    pub(super) fn wants_gpu(&self, index: usize) -> bool {
        let process = &self.processes[index];
        process.alive && process.work && process.frozen == 0 && !matches!(process.wait, Wait::Since(_))
    }

    pub(super) fn is_ready(&self, index: usize) -> bool {
        self.wants_gpu(index) && self.processes[index].wait == Wait::None
    }

    /// Whether its launch gate and its group let a process run.
    pub(super) fn may_run(&self, index: usize) -> bool {
        let process = &self.processes[index];
        let open = matches!(process.page, Page::Open(_));
        self.is_enabled(index) && (process.hardware_scheduled || open)
    }

    /// The processes that run: latency-critical ones before all others.
    fn running(&self) -> Vec<usize> {
        let runs = (0..PROCESSES).filter(|index| self.is_ready(*index) && self.may_run(*index));
        let (critical, others): (Vec<usize>, Vec<usize>) = runs.partition(|index| self.is_critical(*index));
        if critical.is_empty() { others } else { critical }
    }

    pub(super) fn set_work(&mut self, index: usize, work: bool) {
        let process = &mut self.processes[index];
        (process.work, process.since, process.wait) = (work, self.now, Wait::None);
    }

    /// The work of a process begins to wait, or what it waits for has come.
    pub(super) fn change_wait(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.wait = match process.wait {
            Wait::None => Wait::Since(self.now),
            Wait::Since(since) | Wait::Over(since) => Wait::Over(since),
        };
    }

    /// Streams of which the wait is over go on, except those of disabled groups.
    fn end_waits(&mut self) {
        for index in 0..PROCESSES {
            let goes_on = self.is_enabled(index) && self.processes[index].frozen == 0;
            let process = &mut self.processes[index];
            if goes_on && matches!(process.wait, Wait::Over(_)) {
                process.wait = Wait::None;
            }
        }
    }

    /// Time passes. Returns the GPU time of each process.
    pub(super) fn tick(&mut self) -> [u64; PROCESSES] {
        let running = self.running();
        let mut served = [0; PROCESSES];
        for index in &running {
            served[*index] = TICK / running.len() as u64;
            self.processes[*index].used_ns += served[*index];
        }
        self.now += TICK;
        self.flight_is_late = self.flight.is_some();
        let critical: Vec<usize> = running.into_iter().filter(|index| self.is_critical(*index)).collect();
        for index in critical {
            self.ledger.charge_unlimited(client(index), self.now - TICK, self.now, served[index]);
        }
        for process in &mut self.processes {
            process.frozen = process.frozen.saturating_sub(1);
        }
        self.stopped = self.stopped.saturating_sub(1);
        self.manage();
        served
    }

    /// The token protocol of the processes that are not hardware-scheduled.
    fn step_processes(&mut self) {
        let now = self.now;
        for process in self.processes.iter_mut().filter(|p| p.alive && p.frozen == 0 && !p.hardware_scheduled)
        {
            let executes = process.work && process.wait == Wait::None;
            if let Page::Open(Deadline::At(deadline)) = process.page
                && (now >= deadline || !executes)
            {
                (process.page, process.returns) = (Page::Closed, Some(process.used_ns));
            }
            if process.page == Page::Closed && executes {
                (process.page, process.requests) = (Page::Awaited, true);
            }
        }
    }

    /// One round of the processes, and of the manager unless it is stopped.
    pub(super) fn manage(&mut self) {
        self.end_waits();
        self.step_processes();
        if self.stopped > 0 {
            return;
        }
        let now = self.now;
        for index in 0..PROCESSES {
            let process = &mut self.processes[index];
            if let Some(used_ns) = process.returns.take() {
                let _ = self.ledger.returned(id(index), now, used_ns, 0);
            }
            if std::mem::take(&mut process.requests) {
                let _ = self.ledger.request(id(index), now, GrantRequest::default());
            }
            if process.alive {
                let activity = Activity { busy: process.work, since_ns: process.since };
                self.scheduler.set_activity(id(index), activity);
                let waits = match process.wait {
                    Wait::Since(since) | Wait::Over(since) if self.bug != Bug::HidesWaits => Some(since),
                    _ => None,
                };
                self.scheduler.set_waits(id(index), waits);
                self.scheduler.set_wants_default_slices(id(index), process.host_bound);
            }
        }
        for _ in 0..8 {
            self.scheduler.request_and_return_grants(&mut self.ledger, now);
            let actions = self.ledger.advance(now);
            if actions.is_empty() {
                break;
            }
            actions.iter().for_each(|action| self.carry_out(action));
        }
        self.scheduler.take_released();
        if self.flight.is_none() {
            (self.flight, self.flight_is_late) = (self.scheduler.begin_control(now), false);
        }
        for index in 0..PROCESSES {
            let scheduled = self.scheduler.quantum_state(id(index)).is_some();
            let process = &mut self.processes[index];
            if scheduled != process.hardware_scheduled {
                (process.hardware_scheduled, process.page) = (scheduled, Page::Closed);
            }
        }
    }

    fn carry_out(&mut self, action: &Action) {
        if self.bug == Bug::DropsDisable && matches!(action, Action::Disable { .. }) {
            return;
        }
        if let Action::Grant { process, client, .. } = *action {
            let held = matches!(self.processes[index(process.0)].page, Page::Open(_));
            // The groups of clients whose work waits between short bursts are enabled beside those of the holder.
            let is_beside = |client| self.ledger.is_beside(client);
            let other = |holder| holder != client && !self.is_critical(index(client.0)) && !is_beside(holder);
            let two = self.ledger.holders().any(|(holder, _)| other(holder)) && !is_beside(client);
            self.granted_twice |= held || two;
        }
        if self.scheduler.apply_action(action) {
            return;
        }
        match *action {
            Action::Grant { process, .. } if self.bug == Bug::LosesGrant && process == id(2) => {}
            Action::Grant { process, deadline, .. } => {
                self.open(index(process.0), deadline);
                if self.bug == Bug::OpensAllPages {
                    let awaits = |index: &usize| self.processes[*index].page == Page::Awaited;
                    let others: Vec<usize> = (0..PROCESSES).filter(awaits).collect();
                    others.into_iter().for_each(|other| self.open(other, deadline));
                }
            }
            Action::Extend { process, deadline, .. } => {
                self.processes[index(process.0)].page = Page::Open(Deadline::At(deadline));
            }
            Action::Revoke { process, .. } => {
                let process = &mut self.processes[index(process.0)];
                // A process that has requested again still waits.
                process.page = if process.page == Page::Awaited { Page::Awaited } else { Page::Closed };
            }
            Action::Disable { .. } | Action::Contended { .. } | Action::Ended { .. } => {}
        }
    }

    fn open(&mut self, index: usize, deadline: Deadline) {
        let process = &mut self.processes[index];
        (process.page, process.used_ns) = (Page::Open(deadline), 0);
    }

    /// The control in flight ends. One that fails has no effect.
    pub(super) fn end_control(&mut self, fails: bool) {
        let Some(Control { group, op }) = self.flight.take() else { return };
        let setting = self.groups[index(group.0)].as_mut();
        let outcome = match (setting, fails) {
            (None, _) => ControlOutcome::Gone,
            (Some(_), true) if self.bug == Bug::ReportsFailureAsSuccess => ControlOutcome::Done,
            (Some(_), true) => ControlOutcome::Failed,
            (Some(setting), false) => {
                apply(setting, op);
                ControlOutcome::Done
            }
        };
        self.scheduler.finish_control(outcome, &mut self.ledger, self.now);
        self.manage();
    }

    pub(super) fn change_class(&mut self, index: usize) {
        let critical = self.is_critical(index);
        self.processes[index].class = if critical { Class::BestEffort } else { Class::LatencyCritical };
        self.set_client(index, index);
        if !critical {
            // A latency-critical process reports no waits, and need not request.
            self.processes[index].wait = Wait::None;
            let _ = self.ledger.request(id(index), self.now, GrantRequest::default());
        }
    }

    /// The specifications are read again.
    pub(super) fn reload(&mut self) {
        let mixes = usize::from(self.bug == Bug::MixesSpecifications);
        (0..PROCESSES).for_each(|index| self.set_client(index, (index + mixes) % PROCESSES));
    }

    pub(super) fn die(&mut self, index: usize) {
        (self.processes[index].alive, self.groups[index]) = (false, None);
        self.processes[index].page = Page::Closed;
        self.scheduler.forget_group(group(index));
        self.scheduler.remove_process(id(index), &mut self.ledger, self.now);
        self.ledger.process_gone(id(index), self.now);
        self.manage();
    }
}

pub(super) fn apply(setting: &mut Setting, op: ControlOp) {
    match op {
        ControlOp::SetSlice(us) => setting.slice_us = us,
        ControlOp::Disable => setting.enabled = false,
        ControlOp::Enable => setting.enabled = true,
    }
}
