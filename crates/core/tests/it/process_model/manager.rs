//! The manager: the table of processes, and the adapter that applies events to it and carries out its effects, as the pod-manager does.

use super::bugs::Bug;
use super::driver::DriverGroup;
use super::properties;
use super::world::{PROCESSES, Threads, World, index_of, key};
use crate::simulated_gpu::{Arrivals, S, TenantSpec, client_spec, ledger_policy};
use sluice_comm::Channel;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler};
use sluice_core::ledger::{Class, TokenLedger};
use sluice_core::processes::{
    Announcement, ClientFacts, ControlDescriptorId, Effect, Event, GroupFinding, Inspected, Note,
    ObstacleKind, Origin, OwnershipProof, ProcessPolicy, Processes, Record, Violation, ViolationKind,
};
use sluice_core::{ClientId, ConnectionId, ProcessId, ProcessKey, processes};
use std::collections::{BTreeMap, BTreeSet};

/// How often the ledger decides in one round, and how many controls follow each other.
const MOST_ROUNDS: usize = 64;
/// How long a client's process is stopped for the first time.
const FIRST_STOP_NS: u64 = 10 * S;

type MyEvent = Event<(), ()>;

/// What the manager waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pending {
    /// The check of an announcement.
    Proof(ProcessId, u64, Vec<ContextHandles>),
    /// The threads of a process of the kernel stop.
    ThreadsStop(usize),
    /// The result of a search.
    Search(Search),
}

/// What a search has found in each process, and whether its hook announced its groups when the search began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Search([Option<(bool, Vec<ContextHandles>)>; PROCESSES]);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Manager {
    pub(super) table: Processes<(), ()>,
    pub(super) ledger: TokenLedger,
    pub(super) connections: BTreeMap<ConnectionId, ProcessId>,
    pub(super) pending: Vec<Pending>,
    /// The ids under which each process has departed with groups.
    departed: [BTreeSet<ProcessId>; PROCESSES],
    last_connection: u64,
}

impl Manager {
    /// A manager of these clients, which are pods with a limit: a repeated violation stops a process.
    pub(super) fn new(clients: [ClientId; PROCESSES], now: u64) -> Self {
        let groups = ChannelGroupPolicy { control_ns: 1, slices: false, ..ChannelGroupPolicy::default() };
        let policy = ProcessPolicy { controls: true, searches: true, ..ProcessPolicy::default() };
        let table = Processes::new(ChannelGroupScheduler::new(groups), policy);
        let departed = [BTreeSet::new(), BTreeSet::new()];
        let (connections, pending) = (BTreeMap::new(), Vec::new());
        let ledger = TokenLedger::new(ledger_policy());
        let mut manager = Self { table, ledger, connections, pending, departed, last_connection: 0 };
        clients.into_iter().for_each(|client| manager.set_client(client, now));
        manager
    }

    fn set_client(&mut self, client: ClientId, now: u64) {
        let (class, arrivals) = (Class::BestEffort, Arrivals::Saturating);
        let spec = client_spec(&TenantSpec { request: 0.4, limit: 0.5, class, arrivals });
        self.ledger.set_client(client, spec, now);
        let facts = ClientFacts { spec, is_pod: true };
        self.table.apply(Event::ClientChanged(client, facts), &mut self.ledger, now);
    }

    /// The process of the kernel behind an entry of the table.
    pub(super) fn index(&self, id: ProcessId) -> Option<usize> {
        self.table.get(id)?.key.map(index_of)
    }
}

impl World {
    fn apply(&mut self, event: MyEvent) {
        let Self { manager, now, .. } = self;
        for effect in manager.table.apply(event, &mut manager.ledger, *now) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect<()>) {
        match effect {
            Effect::Open(id, origin, announcement) => self.open(id, origin, announcement.contexts),
            Effect::Prove(id, serial, announcement) => {
                let pending = &mut self.manager.pending;
                pending.retain(|pending| !matches!(pending, Pending::Proof(of, ..) if *of == id));
                pending.push(Pending::Proof(id, serial, announcement.contexts));
            }
            Effect::Control(group, descriptor, handles) => self.driver.add(group, descriptor, &handles),
            Effect::Seal(descriptor) => self.driver.close_if_unused(descriptor),
            Effect::Forget(_) if self.bug == Bug::DropsForget => {}
            Effect::Forget(group) => self.driver.forget(group),
            Effect::Close(connection) => self.drop_connection(connection),
            Effect::Disconnected(id) => self.forget_process(id),
            Effect::DepartureSettled(id) => {
                if !self.manager.table.has_groups_of(id) {
                    self.manager.departed.iter_mut().for_each(|departed| departed.retain(|of| *of != id));
                }
            }
            Effect::StopThreads(id) => self.stop_threads(id),
            Effect::ReleaseThreads(_) if self.bug == Bug::KeepsThreadsStopped => {}
            Effect::ReleaseThreads(id) => {
                if let Some(index) = self.manager.index(id) {
                    self.release_threads(index);
                }
            }
            Effect::Violation(Violation { kind: ViolationKind::UnannouncedGroups, pid, .. }) => {
                self.processes[index_of((pid.unwrap(), 0))].found_out = Some(self.now);
            }
            Effect::Report(id, Note::Outside(_)) => {
                if let Some(index) = self.manager.index(id) {
                    self.processes[index].found_out = Some(self.now);
                }
            }
            Effect::Report(id, Note::StopEnded) => self.stop_ended(id),
            // The next step searches in any case. The others concern pages, memory and logs.
            Effect::LoadLocks
            | Effect::Search
            | Effect::SchedulingChanged(_)
            | Effect::Added(_)
            | Effect::TokenChannelClosed(_)
            | Effect::Kept(_)
            | Effect::Violation(_)
            | Effect::Report(..)
            | Effect::NotScheduled { .. } => {}
        }
    }

    /// Opens the descriptors that groups of an announcement name.
    fn open(&mut self, id: ProcessId, origin: Origin, contexts: Vec<ContextHandles>) {
        let index = self.manager.index(id).unwrap();
        let is_named = |descriptor| contexts.iter().any(|context| context.descriptor == descriptor);
        let files: Vec<Option<usize>> =
            (0..2).map(|descriptor| self.file(index, descriptor).filter(|_| is_named(descriptor))).collect();
        let descriptors: Vec<Option<ControlDescriptorId>> =
            files.into_iter().map(|file| Some(self.driver.open(file?))).collect();
        self.apply(Event::Opened { id, origin, contexts, descriptors, failure: None });
    }

    fn stop_threads(&mut self, id: ProcessId) {
        let Some(index) = self.manager.index(id) else { return };
        let client = self.clients.iter().position(|client| *client == self.clients[index]).unwrap();
        self.stops[client] += 1;
        let process = &mut self.processes[index];
        (process.threads, process.stop) = (Threads::Stopping, Some((self.now, self.stops[client])));
        self.manager.pending.push(Pending::ThreadsStop(index));
    }

    fn release_threads(&mut self, index: usize) {
        self.manager.pending.retain(|pending| *pending != Pending::ThreadsStop(index));
        let process = &mut self.processes[index];
        process.threads = Threads::Run;
        process.stopped_groups.clear();
    }

    fn stop_ended(&mut self, id: ProcessId) {
        let stop = self.manager.index(id).and_then(|index| self.processes[index].stop.take());
        let Some((since, number)) = stop else { return };
        if self.now < since + (FIRST_STOP_NS << (number - 1)) {
            self.violated.insert(properties::DOUBLED);
        }
        if self.bug == Bug::ForgetsStops
            && let Some(client) = self.manager.table.client_of(id)
        {
            self.manager.table.forget_client(client);
            self.manager.set_client(client, self.now);
        }
    }

    /// A process opens a connection and announces its groups.
    pub(super) fn connects(&mut self, index: usize) {
        let client = self.clients[index];
        let manager = &mut self.manager;
        manager.last_connection += 1;
        let connection = ConnectionId(manager.last_connection);
        let new = || Record::new(client, Some(key(index)), Some(key(index).0), ());
        let id = manager.table.find(key(index)).unwrap_or_else(|| manager.table.add(new()));
        manager.connections.insert(connection, id);
        self.processes[index].connection = Some(connection);
        self.apply(Event::ChannelOpened(id, Channel::Token, connection));
        let announcement = Announcement { contexts: self.announced(index), descriptors: () };
        self.apply(Event::Attached(id, announcement));
    }

    /// The hook of a process announces its groups anew, if it is connected.
    pub(super) fn announces(&mut self, index: usize) {
        let connection = self.processes[index].connection;
        let Some(id) = connection.and_then(|its| self.manager.connections.get(&its).copied()) else { return };
        if self.bug == Bug::LosesLaterAnnouncements
            && self.manager.table.get(id).is_some_and(|its| its.state.is_misannounced())
        {
            return;
        }
        let announcement = Announcement { contexts: self.announced(index), descriptors: () };
        self.apply(Event::Announced(id, announcement));
    }

    /// A connection is closed.
    pub(super) fn drop_connection(&mut self, connection: ConnectionId) {
        let Some(id) = self.manager.connections.remove(&connection) else { return };
        let is_watched = self.bug != Bug::WatchesNoProcess;
        self.apply(Event::ChannelClosed { id, channel: Channel::Token, connection, is_watched });
    }

    /// Whether the table has a process as one that runs without the hook.
    pub(super) fn is_unhooked(&self, index: usize) -> bool {
        let table = &self.manager.table;
        let record = table.find(key(index)).and_then(|id| table.get(id));
        record.is_some_and(|record| record.state == processes::State::Unhooked)
    }

    /// A process that runs without the hook opens its channel for memory and closes it. Records whether it loses groups by that.
    pub(super) fn uses_memory_channel(&mut self, index: usize) {
        let Some(id) = self.manager.table.find(key(index)) else { return };
        let before: BTreeSet<DriverGroup> = self.groups_of_process(id).collect();
        self.manager.last_connection += 1;
        let (channel, connection) = (Channel::Memory, ConnectionId(self.manager.last_connection));
        self.apply(Event::ChannelOpened(id, channel, connection));
        let is_watched = self.bug != Bug::WatchesNoProcess;
        self.apply(Event::ChannelClosed { id, channel, connection, is_watched });
        if before != self.groups_of_process(id).collect() {
            self.violated.insert(properties::KEPT);
        }
    }

    fn forget_process(&mut self, id: ProcessId) {
        let Self { manager, now, .. } = self;
        let Some(record) = manager.table.remove(id, &mut manager.ledger, *now) else { return };
        manager.connections.retain(|_, of| *of != id);
        let index = record.key.map(index_of).unwrap();
        if !record.state.is_unhooked() && manager.table.has_groups_of(id) {
            manager.departed[index].insert(id);
        }
        self.processes[index].stop = None;
        self.release_threads(index);
    }

    /// The kernel reports the ends of processes that are in the table, or have departed with groups.
    fn report_ends(&mut self) {
        for index in 0..PROCESSES {
            if self.processes[index].alive {
                continue;
            }
            let known = self.manager.table.find(key(index));
            let departed = std::mem::take(&mut self.manager.departed[index]);
            for id in departed.into_iter().filter(|id| Some(*id) != known).chain(known) {
                self.apply(Event::Ended(id));
            }
            if let Some(id) = known {
                self.forget_process(id);
            }
        }
    }

    /// A search looks at all processes.
    pub(super) fn begin_search(&mut self) {
        self.manager.table.begin_search(self.now);
        let announcing: Vec<ProcessKey> = self.manager.table.announcing_keys().collect();
        let look = |index: usize| {
            let is_attached = announcing.contains(&key(index));
            self.processes[index].alive.then(|| (is_attached, self.found(index)))
        };
        let search = Search([look(0), look(1)]);
        self.manager.pending.push(Pending::Search(search));
    }

    fn search_ended(&mut self, Search(found): Search) {
        let candidates = (0..PROCESSES).filter(|index| found[*index].is_some()).map(key).collect();
        self.manager.table.candidates_listed(&candidates);
        let found = found.into_iter().enumerate().filter_map(|(index, found)| Some((index, found?)));
        let (attached, others): (Vec<_>, Vec<_>) = found.partition(|(_, (is_attached, _))| *is_attached);
        for (index, (_, contexts)) in attached {
            let found = some_groups(contexts);
            let has_unannounced = false;
            self.apply(Event::InspectedAttached { key: key(index), found, has_unannounced });
        }
        let counts = self.bug != Bug::InspectsAttachedOnly;
        for (index, (_, contexts)) in others.into_iter().filter(|_| counts) {
            let (key, client, command) = (key(index), self.clients[index], String::new());
            let found = some_groups(contexts).map(|contexts| Announcement { contexts, descriptors: () });
            let has_unannounced = false;
            let inspected = Inspected { key, client, command, found, endpoint: (), has_unannounced };
            self.apply(Event::Inspected(inspected));
        }
    }

    /// What the manager waits for happens.
    pub(super) fn answer(&mut self) {
        for pending in std::mem::take(&mut self.manager.pending) {
            match pending {
                Pending::Search(search) => self.search_ended(search),
                Pending::ThreadsStop(index) => self.threads_stopped(index),
                Pending::Proof(process, serial, contexts) => {
                    let Some(index) =
                        self.manager.index(process).filter(|index| self.processes[*index].alive)
                    else {
                        continue;
                    };
                    let is_its_own = |context: &ContextHandles| {
                        self.file(index, context.descriptor) == Some(DriverGroup::of(context).file)
                    };
                    let owns = contexts.iter().all(is_its_own) || self.bug == Bug::ProvesEverything;
                    self.apply(Event::Proven(OwnershipProof { process, serial, owns: Ok(owns) }));
                }
            }
            self.manage();
        }
    }

    fn threads_stopped(&mut self, index: usize) {
        let Some(id) = self.manager.table.find(key(index)) else { return };
        self.processes[index].threads = Threads::Stopped;
        self.apply(Event::ThreadsStopped(id, Ok(())));
        self.manage();
        self.processes[index].stopped_groups = self.groups_of_process(id).collect();
    }

    /// The driver's groups that are under control for a process.
    pub(super) fn groups_of_process(&self, id: ProcessId) -> impl Iterator<Item = DriverGroup> {
        let scheduler = &self.manager.table.scheduler;
        let its = self.driver.controlled.iter().filter(move |(group, _)| scheduler.owns(id, **group));
        its.map(|(_, known)| known.group)
    }

    /// The executor compares the groups with what it has set.
    pub(super) fn check_groups(&mut self) {
        for group in self.driver.running_disabled() {
            let (kind, what) = (ViolationKind::StoppedGroupRan, String::new());
            self.apply(Event::Checked(GroupFinding { group, kind, what, checks: None }));
        }
    }

    /// Rounds of the manager's loop, until there is nothing left to do at this time. Controls end at once.
    pub(super) fn manage(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if self.bug != Bug::ReportsNoEnd {
                self.report_ends();
            }
            self.apply(Event::TimePassed);
            for id in self.manager.table.due(self.now) {
                self.apply(Event::Due(id));
            }
            self.apply(Event::DueEnded);
            self.apply(Event::RoundBegins);
            let Manager { table, ledger, .. } = &mut self.manager;
            for _ in 0..MOST_ROUNDS {
                table.scheduler.request_and_return_grants(ledger, self.now);
                let actions = ledger.advance(self.now);
                if actions.is_empty() {
                    break;
                }
                for action in &actions {
                    table.scheduler.apply_action(action);
                }
            }
            self.apply(Event::RoundEnds);
            let Some(control) = self.manager.table.scheduler.begin_control(self.now) else { break };
            let owner = self.manager.table.owner(control.group);
            let is_stopped = owner.is_some_and(|id| self.manager.table.scheduler.is_stopped(id));
            let outcome = self.driver.make(control, is_stopped, self.bug);
            self.apply(Event::ControlEnded(outcome));
        }
        self.free();
    }
}

/// What an inspection reports.
fn some_groups(
    contexts: Vec<ContextHandles>,
) -> Result<Vec<ContextHandles>, sluice_core::processes::Obstacle> {
    if contexts.is_empty() { Err(ObstacleKind::NoGroups.because("no groups")) } else { Ok(contexts) }
}
