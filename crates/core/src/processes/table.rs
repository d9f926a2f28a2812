//! The table of processes and of their groups, with its indices.

use super::announcement::handles_of;
use super::event::{ClientFacts, Effect, Step};
use super::history::History;
use super::obstacle::ObstacleKind;
use super::record::Record;
use super::uncertainty::MARKS;
use super::violation::ViolationPolicy;
use crate::channel_groups::{ChannelGroupScheduler, GroupId};
use crate::ids::{ClientId, ProcessId, ProcessKey};
use crate::ledger::{Class, TokenLedger};
use sluice_comm::attach::ContextHandles;
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{BTreeMap, BTreeSet};

/// New groups that one client may announce: 64 at once, and 10 a second in the long run. The controls of a group take about 1.5 ms, so
/// that is 1.5 % of the driver's time.
const ANNOUNCEMENTS: Rate = Rate::one_per(64, 100_000_000);

/// The most processes without connection of which is remembered that they had attached: a tenant may start processes without end.
const MOST_REMEMBERED: usize = 4096;

/// What the node and the operator allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProcessPolicy {
    /// Channel groups can be controlled.
    pub controls: bool,
    /// Processes are inspected from outside.
    pub searches: bool,
    /// What follows from violations.
    pub violations: ViolationPolicy,
}

/// A group under control.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControlledGroup {
    /// Its process.
    pub process: ProcessId,
    /// The client of that process, which may have gone.
    pub(super) client: Option<ClientId>,
    pub(super) pid: Option<i32>,
    /// As it was announced last.
    pub(super) context: ContextHandles,
}

/// What is known of a client here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientState {
    pub(super) facts: ClientFacts,
    /// How many groups it may still announce.
    pub(super) announcements: RateLimiter,
    /// How many groups of it may still be marked because a connection was made anew or has closed.
    pub(super) marks: RateLimiter,
    /// How often processes of it were stopped.
    pub(super) stops: u32,
}

/// All processes of one GPU. `P` is what the caller keeps with each, `D` the descriptors of an announcement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Processes<P, D> {
    pub(super) policy: ProcessPolicy,
    /// The scheduler of their groups. Whether a process is hardware-scheduled is known there alone.
    pub scheduler: ChannelGroupScheduler,
    pub(super) records: BTreeMap<ProcessId, Record<P, D>>,
    by_key: BTreeMap<ProcessKey, ProcessId>,
    by_client: BTreeMap<ClientId, BTreeSet<ProcessId>>,
    /// Processes of which something happens at a time. A round visits no others.
    timed: BTreeSet<ProcessId>,
    /// What is remembered of processes that are not in the table.
    pub(super) absent: BTreeMap<ProcessKey, History>,
    pub(super) groups: BTreeMap<GroupId, ControlledGroup>,
    pub(super) clients: BTreeMap<ClientId, ClientState>,
    /// The driver's lock can be used.
    pub locks_ready: bool,
    /// Until then findings of checks do not count.
    pub(super) unchecked_until: u64,
    /// Numbers of the last process, group and ownership check.
    last_process: u64,
    last_group: u64,
    pub(super) last_check: u64,
}

impl<P, D> Processes<P, D> {
    /// A table without processes.
    pub fn new(scheduler: ChannelGroupScheduler, policy: ProcessPolicy) -> Self {
        Self {
            policy,
            scheduler,
            records: BTreeMap::new(),
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            timed: BTreeSet::new(),
            absent: BTreeMap::new(),
            groups: BTreeMap::new(),
            clients: BTreeMap::new(),
            locks_ready: false,
            unchecked_until: 0,
            last_process: 0,
            last_group: 0,
            last_check: 0,
        }
    }

    /// Adds a process.
    pub fn add(&mut self, mut record: Record<P, D>) -> ProcessId {
        self.last_process += 1;
        let id = ProcessId(self.last_process);
        if let Some(key) = record.key {
            self.by_key.insert(key, id);
            record.history = self.absent.remove(&key).unwrap_or_default();
        }
        self.by_client.entry(record.client).or_default().insert(id);
        self.records.insert(id, record);
        id
    }

    /// Takes a process out, and releases its groups. What is remembered of it stays.
    pub fn remove(&mut self, id: ProcessId, ledger: &mut TokenLedger, now: u64) -> Option<Record<P, D>> {
        let mut record = self.records.remove(&id)?;
        self.timed.remove(&id);
        if let Some(of_client) = self.by_client.get_mut(&record.client) {
            of_client.remove(&id);
            if of_client.is_empty() {
                self.by_client.remove(&record.client);
            }
        }
        if let Some(key) = record.key {
            self.by_key.remove(&key);
            let history = std::mem::take(&mut record.history);
            // What a tenant can cause without end does not take the place of findings and of what inspections have shown.
            let is_kept = if history.is_brief() {
                history != History::default() && self.absent.len() < MOST_REMEMBERED
            } else {
                self.forget_what_is_over(now);
                true
            };
            if is_kept {
                self.absent.insert(key, history);
            }
        }
        self.scheduler.remove_process(id, ledger, now);
        ledger.process_gone(id, now);
        Some(record)
    }

    /// Whether there is no process.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A process.
    pub fn get(&self, id: ProcessId) -> Option<&Record<P, D>> {
        self.records.get(&id)
    }

    /// A process, to change it.
    pub fn get_mut(&mut self, id: ProcessId) -> Option<&mut Record<P, D>> {
        self.records.get_mut(&id)
    }

    /// The process that the kernel knows by this key.
    pub fn find(&self, key: ProcessKey) -> Option<ProcessId> {
        self.by_key.get(&key).copied()
    }

    /// The process that the kernel knows by this key, with its state.
    pub fn get_by_key(&self, key: ProcessKey) -> Option<&Record<P, D>> {
        self.get(self.find(key)?)
    }

    /// The client of a process.
    pub fn client_of(&self, id: ProcessId) -> Option<ClientId> {
        self.records.get(&id).map(|record| record.client)
    }

    /// All processes.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, &Record<P, D>)> {
        self.records.iter().map(|(id, record)| (*id, record))
    }

    /// All processes, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ProcessId, &mut Record<P, D>)> {
        self.records.iter_mut().map(|(id, record)| (*id, record))
    }

    /// The processes of a client.
    pub fn of_client(&self, client: ClientId) -> impl Iterator<Item = (ProcessId, &Record<P, D>)> {
        let ids = self.by_client.get(&client).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.records.get(id)?)))
    }

    /// The ids of a client's processes, for loops that change them.
    pub fn ids_of_client(&self, client: ClientId) -> Vec<ProcessId> {
        self.by_client.get(&client).into_iter().flatten().copied().collect()
    }

    /// Whether a client has a process.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }

    /// The kernel identities of the processes whose hooks announce their groups.
    pub fn announcing_keys(&self) -> impl Iterator<Item = ProcessKey> {
        self.records.values().filter(|record| record.announces()).filter_map(|record| record.key)
    }

    /// What is remembered of a process.
    pub(super) fn history(&mut self, key: ProcessKey) -> &mut History {
        match self.by_key.get(&key).and_then(|id| self.records.get_mut(id)) {
            Some(record) => &mut record.history,
            None => self.absent.entry(key).or_default(),
        }
    }

    /// The next search inspects a process, whether it has changed or not.
    pub(super) fn inspect_next(&mut self, id: ProcessId) {
        let searches = self.policy.searches;
        if let Some(record) = self.records.get_mut(&id).filter(|record| searches && record.key.is_some()) {
            record.history.is_requested = true;
        }
    }

    /// Forgets a client that will not come back.
    pub fn forget_client(&mut self, id: ClientId) {
        self.clients.remove(&id);
    }

    pub(super) fn set_facts(&mut self, id: ClientId, facts: ClientFacts) {
        let (announcements, marks) = (RateLimiter::full(ANNOUNCEMENTS), RateLimiter::full(MARKS));
        let new = ClientState { facts, announcements, marks, stops: 0 };
        self.clients.entry(id).or_insert(new).facts = facts;
    }

    pub(super) fn class(&self, client: ClientId) -> Option<Class> {
        self.clients.get(&client).map(|client| client.facts.spec.class)
    }

    pub(super) fn is_critical(&self, client: ClientId) -> bool {
        self.class(client).is_some_and(Class::is_latency_critical)
    }

    /// Whether the GPU schedules a process: its groups are enabled and disabled by quanta.
    pub fn is_hardware_scheduled(&self, id: ProcessId) -> bool {
        self.scheduler.quantum_state(id).is_some()
    }

    /// How many processes of a client run without the hook and are scheduled all the same.
    pub fn scheduled_unhooked(&self, client: ClientId) -> usize {
        let unhooked = self.of_client(client).filter(|(_, record)| record.state.is_unhooked());
        unhooked.filter(|(id, _)| self.scheduler.has_controlled_groups(*id)).count()
    }

    /// How many processes of a client run without the hook and are not scheduled, or have attached and cannot be inspected, by
    /// [`ObstacleKind::index`].
    pub fn unscheduled(&self, client: ClientId) -> [u32; ObstacleKind::LABELS.len()] {
        let mut counts = [0; ObstacleKind::LABELS.len()];
        let histories = self.records.values().map(|record| &record.history).chain(self.absent.values());
        let its = histories.filter_map(|history| history.unscheduled).filter(|(of, _)| *of == client);
        let unhooked = self.of_client(client).filter(|(_, record)| record.state.is_unhooked());
        let on_probation = unhooked.filter(|(id, _)| self.scheduler.is_on_probation(*id));
        for why in its.map(|(_, why)| why).chain(on_probation.map(|_| ObstacleKind::ControlFailed)) {
            counts[why.index()] += 1;
        }
        counts
    }

    /// How many processes of a client are stopped.
    pub fn stopped_processes(&self, client: ClientId) -> u32 {
        let its = self.of_client(client).filter(|(_, record)| record.is_stopped());
        u32::try_from(its.count()).unwrap_or(u32::MAX)
    }

    /// How many announcements are postponed.
    pub fn postponed_announcements(&self) -> usize {
        self.timed().filter(|(_, record)| record.postponed.is_some()).count()
    }

    /// When there is something to do, if no event comes before.
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        let timed = self.timed().filter_map(|(_, record)| record.next_deadline());
        timed.chain(self.scheduler.next_wakeup(now)).min()
    }

    /// Whether a group is under control.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether a process has a group under control, be it one that is being released.
    pub fn has_groups_of(&self, id: ProcessId) -> bool {
        self.of_process(id).next().is_some()
    }

    /// The process of a group.
    pub fn owner(&self, group: GroupId) -> Option<ProcessId> {
        self.groups.get(&group).map(|group| group.process)
    }

    /// The groups of a process.
    pub(super) fn of_process(&self, id: ProcessId) -> impl Iterator<Item = (GroupId, &ControlledGroup)> {
        let its = self.groups.iter().filter(move |(_, group)| group.process == id);
        its.map(|(id, group)| (*id, group))
    }

    /// The groups of other processes, or of all without an id.
    pub(super) fn of_others(&self, id: Option<ProcessId>) -> impl Iterator<Item = &ControlledGroup> {
        self.groups.values().filter(move |group| Some(group.process) != id)
    }

    /// A process's groups as they are controlled, without those that are being released.
    pub(super) fn contexts(&self, id: ProcessId) -> impl Iterator<Item = &ContextHandles> {
        let kept = self.of_process(id).filter(move |(group, _)| self.scheduler.owns(id, *group));
        kept.map(|(_, group)| &group.context)
    }

    /// The group that a process has under control exactly as it announces it, through any descriptor.
    pub(super) fn unchanged(&self, id: ProcessId, context: &ContextHandles) -> Option<GroupId> {
        let descriptor = context.descriptor;
        let same = |group: &ControlledGroup| {
            handles_of(&group.context) == handles_of(context)
                && ContextHandles { descriptor, ..group.context.clone() } == *context
        };
        let mut its = self.of_process(id);
        its.find(|(group_id, group)| same(group) && self.scheduler.owns(id, *group_id)).map(|(id, _)| id)
    }

    /// Takes a group into the table. A known group keeps its number, also if another process of the client had it and it is being released:
    /// under two numbers, the one's release would enable it in the other's pauses.
    pub(super) fn add_group(&mut self, id: ProcessId, context: &ContextHandles) -> GroupId {
        let (client, pid) = self.get(id).map_or((None, None), |record| (Some(record.client), record.pid));
        let known = self.groups.iter().find(|(number, group)| {
            let its = group.process == id || pid.is_some() && group.pid == pid;
            let is_free = group.client == client && !self.scheduler.owns(group.process, **number);
            (its || is_free) && handles_of(&group.context) == handles_of(context)
        });
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            self.last_group += 1;
            GroupId(self.last_group)
        });
        self.groups.insert(number, ControlledGroup { process: id, client, pid, context: context.clone() });
        number
    }

    /// Forgets a group that has gone, or that this manager controls no longer.
    pub(super) fn forget_group(&mut self, group: GroupId, step: &mut Step<'_, D>) {
        self.scheduler.forget_group(group);
        step.effects.push(Effect::Forget(group));
        step.effects.extend(self.groups.remove(&group).map(|group| Effect::DepartureSettled(group.process)));
    }

    /// Something of a process happens at a time from here on.
    pub(super) fn note_timed(&mut self, id: ProcessId) {
        if self.records.contains_key(&id) {
            self.timed.insert(id);
        }
    }

    /// The processes of which something happens at a time.
    pub(super) fn timed(&self) -> impl Iterator<Item = (ProcessId, &Record<P, D>)> {
        self.timed.iter().filter_map(|id| Some((*id, self.records.get(id)?)))
    }

    /// The processes that [`Event::Due`](super::event::Event::Due) concerns now: a stop has ended, or an announcement may be made.
    pub fn due(&self, now: u64) -> Vec<ProcessId> {
        let is_due = |record: &Record<P, D>| {
            record.is_due(now) || record.is_stopped() && self.is_critical(record.client)
        };
        self.timed().filter(|(_, record)| is_due(record)).map(|(id, _)| id).collect()
    }

    /// Visits the processes of which something happens at a time, to change them.
    pub(super) fn for_each_timed(&mut self, mut visit: impl FnMut(ProcessId, &mut Record<P, D>)) {
        for id in &self.timed {
            if let Some(record) = self.records.get_mut(id) {
                visit(*id, record);
            }
        }
    }

    /// Removes the processes that have no deadline left from those that each round visits.
    pub(super) fn retire_timed(&mut self) {
        self.timed.retain(|id| self.records.get(id).is_some_and(Record::is_timed));
    }
}
