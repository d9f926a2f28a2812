//! Who is steered, and the controls made for them.

use super::activity::Activity;
use super::budget::Budget;
use super::control::{Control, GroupId, Op, Outcome};
use super::gate::Gate;
use super::policy::SteeringPolicy;
use super::process::{Process, Turn};
use super::reconciler::{Change, Reconciler, Released};
use crate::ids::{ClientId, ProcessId};
use crate::ledger::{Class, PeerKind, TokenLedger};
use std::collections::{BTreeMap, BTreeSet};

/// What the owner of the groups has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A control of the process's client failed: it is not steered any more, and takes turns by token.
    GivenUp(ProcessId),
    /// None of the process's groups is there any more: it takes turns by token until it announces others.
    Unsteered(ProcessId),
    /// A group is not controlled any more.
    Released(Released),
}

/// Steering of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Steering {
    pub(super) policy: SteeringPolicy,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// Clients of which a control failed.
    pub(super) given_up: BTreeSet<ClientId>,
    pub(super) reconciler: Reconciler,
    pub(super) gate: Gate,
    pub(super) budget: Budget,
    /// Somebody waits.
    pub(super) contended: bool,
    /// Best-effort clients that hold a grant.
    pub(super) holders: BTreeSet<ClientId>,
    /// Somebody latency-critical is present.
    pub(super) guarded: bool,
    /// The best-effort group that runs while somebody latency-critical is present.
    pub(super) one: Option<GroupId>,
    /// Its client's turn goes on: another of its groups is to run.
    pub(super) rotate: bool,
    pub(super) chosen: u64,
    pub(super) last_chosen: BTreeMap<GroupId, u64>,
    pub(super) turns: u64,
    /// Groups of processes that have hung up, and when they are given back unless those have ended by then.
    pub(super) parting: BTreeMap<GroupId, u64>,
}

impl Steering {
    /// Steers nobody yet.
    #[must_use]
    pub fn new(policy: SteeringPolicy) -> Self {
        Self { reconciler: Reconciler::new(policy.slices), policy, ..Self::default() }
    }

    /// What a process says of itself now.
    pub fn observe(&mut self, id: ProcessId, activity: Activity) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.activity = activity;
        }
    }

    /// The next control to make, if none is in flight.
    pub fn begin(&mut self, now: u64) -> Option<Control> {
        if self.reconciler.in_flight().is_some() {
            return None;
        }
        self.end_parting(now);
        self.plan(now);
        let control = self.reconciler.begin()?;
        let best_effort = |id| self.processes.get(&id).is_some_and(Process::is_best_effort);
        if matches!(control.op, Op::Stop | Op::Start) && self.owner(control.group).is_some_and(best_effort) {
            self.budget.spend(&self.policy, now);
        }
        Some(control)
    }

    /// The control in flight has ended at `now`.
    pub fn done(&mut self, outcome: Outcome, tokens: &mut TokenLedger, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        match self.reconciler.done(outcome) {
            Some(Change::Started(group) | Change::Stopped(group)) => {
                if let Some(id) = self.owner(group) {
                    self.count_running(id, tokens, now);
                }
            }
            Some(Change::Gone(group)) => {
                let owner = self.owner(group);
                self.forget(group);
                if let Some(id) = owner {
                    self.count_running(id, tokens, now);
                    events.extend(self.unsteer_if_bare(id, tokens, now));
                }
                events.push(Event::Released(Released { group, is_free: true }));
            }
            Some(Change::Failed(group)) => events.extend(self.give_up(group, tokens, now)),
            Some(Change::Sliced(_)) | None => {}
        }
        events.extend(self.take_released().into_iter().map(Event::Released));
        events
    }

    /// The groups that were given back since this was last asked. Some need no control for that.
    pub fn take_released(&mut self) -> Vec<Released> {
        self.reconciler.take_released()
    }

    /// Takes a client out: what could not be controlled once is not relied on again.
    fn give_up(&mut self, group: GroupId, tokens: &mut TokenLedger, now: u64) -> Vec<Event> {
        let owner = self.owner(group).and_then(|id| self.processes.get(&id));
        // Without an owner it is being given back already.
        let Some(client) = owner.map(|process| process.client) else { return Vec::new() };
        self.given_up.insert(client);
        let its = self.processes.iter().filter(|(_, process)| process.client == client);
        let ids: Vec<ProcessId> = its.map(|(id, _)| *id).collect();
        for id in &ids {
            let Some(process) = self.processes.get_mut(id) else { continue };
            for group in std::mem::take(&mut process.groups) {
                self.reconciler.release(group);
            }
            if process.is_best_effort() {
                self.leave(*id, tokens, now);
            }
        }
        ids.into_iter().map(Event::GivenUp).collect()
    }

    fn unsteer_if_bare(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) -> Option<Event> {
        let bare = |process: &&Process| process.is_best_effort() && process.groups.is_empty();
        self.processes.get(&id).filter(bare)?;
        self.leave(id, tokens, now);
        Some(Event::Unsteered(id))
    }

    /// Tells the ledger whether a process's client runs.
    pub(super) fn count_running(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let runs = |process: &Process| process.groups.iter().any(|group| self.reconciler.may_run(*group));
        let Some(process) = self.processes.get(&id).filter(|process| process.is_best_effort()) else {
            return;
        };
        let (client, its) = (process.client, runs(process));
        self.tell_running(client, tokens, now);
        if let Some(process) = self.processes.get_mut(&id) {
            if process.runs_since.is_some() && !its {
                process.stopped_at = now;
            }
            process.runs_since = if its { process.runs_since.or(Some(now)) } else { None };
        }
    }

    pub(super) fn tell_running(&self, client: ClientId, tokens: &mut TokenLedger, now: u64) {
        let mut its = self.processes.values().filter(|process| process.client == client);
        let runs = its.any(|process| process.groups.iter().any(|group| self.reconciler.may_run(*group)));
        tokens.set_running(client, runs, now);
    }

    fn owner(&self, group: GroupId) -> Option<ProcessId> {
        self.processes.iter().find(|(_, process)| process.groups.contains(&group)).map(|(id, _)| *id)
    }

    /// The processes whose activity matters.
    pub fn watched(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.processes.keys().copied()
    }

    /// Whether anybody latency-critical is attached.
    #[must_use]
    pub fn has_critical(&self) -> bool {
        self.processes.values().any(|process| !process.is_best_effort())
    }

    /// Whether a process's channel groups are controlled.
    #[must_use]
    pub fn controls(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| !process.groups.is_empty())
    }

    /// Whether a group is a process's, and under control.
    #[must_use]
    pub fn owns(&self, id: ProcessId, group: GroupId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.groups.contains(&group))
    }

    /// Whether a process's activity matters.
    #[must_use]
    pub fn watches(&self, id: ProcessId) -> bool {
        self.processes.contains_key(&id)
    }

    /// A client is of another class from now on; the ledger knows already.
    pub fn set_class(&mut self, client: ClientId, class: Class, tokens: &mut TokenLedger, now: u64) {
        for (id, process) in self.processes.iter_mut().filter(|(_, process)| process.client == client) {
            (process.class, process.turn) = (class, Turn::Idle);
            let steered = class == Class::BestEffort && !process.groups.is_empty();
            let _ = tokens.set_kind(*id, if steered { PeerKind::Steered } else { PeerKind::Returns }, now);
        }
        // Best-effort processes without groups are not steered.
        self.processes.retain(|_, process| !process.is_best_effort() || !process.groups.is_empty());
        let its = self.processes.iter().filter(|(_, process)| process.client == client);
        let its: Vec<ProcessId> = its.map(|(id, _)| *id).collect();
        its.into_iter().for_each(|id| self.count_running(id, tokens, now));
    }

    /// Where a best-effort process stands, if it is steered.
    #[must_use]
    pub fn turn(&self, id: ProcessId) -> Option<Turn> {
        self.processes.get(&id).filter(|process| process.is_steered()).map(|process| process.turn)
    }

    /// Turns granted so far.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Hand-overs that disturbed somebody latency-critical because no good moment came.
    #[must_use]
    pub const fn forced(&self) -> u64 {
        self.gate.forced()
    }

    /// Whether no control is in flight and none is to be made.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.reconciler.is_settled()
    }
}
