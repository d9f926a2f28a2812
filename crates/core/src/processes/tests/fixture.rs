//! A table of processes whose descriptors can be opened, and the ledger that it concerns.

use crate::channel_groups::{ChannelGroupPolicy, ChannelGroupScheduler, ControlOutcome};
use crate::ledger::{Class, ClientSpec, Policy, ReturnKind, TokenLedger};
use crate::processes::{
    Announcement, ClientFacts, ControlDescriptorId, Effect, Event, GroupFinding, Inspected, Obstacle,
    OwnershipProof, ProcessPolicy, Processes, Record, ViolationKind,
};
use crate::share::Share;
use crate::{ClientId, ConnectionId, ProcessId, ProcessKey};
use sluice_comm::Channel;
use sluice_comm::attach::ContextHandles;

pub(super) const CLIENT: ClientId = ClientId(1);
pub(super) const S: u64 = 1_000_000_000;

/// A limit, so that a repeated violation stops a process.
pub(super) const HALF: Share = Share::from_ppm(500_000).unwrap();

pub(super) struct Fixture {
    pub(super) processes: Processes<(), ()>,
    ledger: TokenLedger,
    pub(super) now: u64,
    last_connection: u64,
}

/// A group with one channel behind the first descriptor.
fn context(group: u32) -> ContextHandles {
    let channels = vec![10 * group];
    ContextHandles { descriptor: 0, client: 100, subdevice: 1, channel_group: group, channels }
}

fn announcement(groups: &[u32]) -> Announcement<()> {
    Announcement { contexts: groups.iter().copied().map(context).collect(), descriptors: () }
}

impl Fixture {
    /// A manager that inspects processes, with one best-effort client that has a limit.
    pub(super) fn new() -> Self {
        let policy = ProcessPolicy { controls: true, searches: true, ..ProcessPolicy::default() };
        let groups = ChannelGroupPolicy { control_ns: 1, ..ChannelGroupPolicy::default() };
        let processes = Processes::new(ChannelGroupScheduler::new(groups), policy);
        let ledger = TokenLedger::new(Policy::default());
        let mut fixture = Self { processes, ledger, now: S, last_connection: 0 };
        let spec = ClientSpec { request: HALF, limit: HALF, class: Class::BestEffort };
        fixture.ledger.set_client(CLIENT, spec, fixture.now);
        fixture.apply(Event::ClientChanged(CLIENT, ClientFacts { spec, is_pod: true }));
        fixture
    }

    /// Applies an event. Every descriptor that is to be opened is opened. Returns the effects in their order.
    pub(super) fn apply(&mut self, event: Event<(), ()>) -> Vec<Effect<()>> {
        let mut effects = Vec::new();
        for effect in self.processes.apply(event, &mut self.ledger, self.now) {
            effects.push(effect.clone());
            if let Effect::Open(id, origin, Announcement { contexts, .. }) = effect {
                let descriptors = vec![Some(ControlDescriptorId(1)); usize::from(!contexts.is_empty())];
                effects.extend(self.apply(Event::Opened {
                    id,
                    origin,
                    contexts,
                    descriptors,
                    failure: None,
                }));
            }
        }
        effects
    }

    /// A process of the client is in the table, as when a connection of it is made.
    pub(super) fn add(&mut self, key: ProcessKey) -> ProcessId {
        self.processes.find(key).unwrap_or_else(|| {
            let id = self.processes.add(Record::new(CLIENT, Some(key), Some(key.0), ()));
            self.ledger.add_process(id, CLIENT, ReturnKind::Returns).unwrap();
            id
        })
    }

    /// A process has closed its last connection.
    pub(super) fn forget(&mut self, id: ProcessId) {
        self.processes.remove(id, &mut self.ledger, self.now);
    }

    pub(super) fn open(&mut self, id: ProcessId, channel: Channel) -> (ConnectionId, Vec<Effect<()>>) {
        self.last_connection += 1;
        let connection = ConnectionId(self.last_connection);
        let effects = self.apply(Event::ChannelOpened(id, channel, connection));
        (connection, effects)
    }

    pub(super) fn close(
        &mut self,
        id: ProcessId,
        channel: Channel,
        connection: ConnectionId,
    ) -> Vec<Effect<()>> {
        self.apply(Event::ChannelClosed { id, channel, connection, is_watched: true })
    }

    /// A process attaches and announces these groups, which are its own.
    pub(super) fn attach(&mut self, key: ProcessKey, groups: &[u32]) -> (ProcessId, ConnectionId) {
        let id = self.add(key);
        let (connection, _) = self.open(id, Channel::Token);
        self.announce(id, groups);
        (id, connection)
    }

    /// A process announces these groups, which are its own.
    pub(super) fn announce(&mut self, id: ProcessId, groups: &[u32]) -> Vec<Effect<()>> {
        let mut effects = self.begin_announcing(id, groups);
        let serial = Self::requested_proof(&effects);
        effects.extend(serial.into_iter().flat_map(|serial| self.prove(id, serial)));
        effects
    }

    /// A process announces these groups. They are not checked yet.
    pub(super) fn begin_announcing(&mut self, id: ProcessId, groups: &[u32]) -> Vec<Effect<()>> {
        self.apply(Event::Announced(id, announcement(groups)))
    }

    /// The number of the ownership check that was requested.
    pub(super) fn requested_proof(effects: &[Effect<()>]) -> Option<u64> {
        effects.iter().find_map(|effect| match effect {
            Effect::Prove(_, serial, _) => Some(*serial),
            _ => None,
        })
    }

    pub(super) fn prove(&mut self, process: ProcessId, serial: u64) -> Vec<Effect<()>> {
        self.apply(Event::Proven(OwnershipProof { process, serial, owns: Ok(true) }))
    }

    /// An inspection of a process that does not announce its groups has found these.
    pub(super) fn find(&mut self, key: ProcessKey, groups: &[u32]) -> Vec<Effect<()>> {
        self.inspected(key, Ok(announcement(groups)))
    }

    pub(super) fn inspected(
        &mut self,
        key: ProcessKey,
        found: Result<Announcement<()>, Obstacle>,
    ) -> Vec<Effect<()>> {
        let (client, command, endpoint) = (CLIENT, "program".to_owned(), ());
        let has_unannounced = false;
        let inspected = Inspected { key, client, command, found, endpoint, has_unannounced };
        self.apply(Event::Inspected(inspected))
    }

    /// An inspection of an attached process has found these groups.
    pub(super) fn inspect_attached(&mut self, key: ProcessKey, groups: &[u32]) -> Vec<Effect<()>> {
        let found = Ok(announcement(groups).contexts);
        self.apply(Event::InspectedAttached { key, found, has_unannounced: false })
    }

    /// Makes all controls that are wanted now. Returns how many these were.
    pub(super) fn make_controls(&mut self) -> usize {
        self.apply(Event::RoundEnds);
        let mut controls = 0;
        while self.processes.scheduler.begin_control(self.now).is_some() {
            self.apply(Event::ControlEnded(ControlOutcome::Done));
            self.apply(Event::RoundEnds);
            controls += 1;
            self.now += 1;
        }
        controls
    }

    /// A client with a limit repeats this violation at a group of the process, so that the process is stopped.
    pub(super) fn violate(&mut self, id: ProcessId, group: u32) -> Vec<Effect<()>> {
        let number = self.processes.of_process(id).find(|(_, its)| its.context.channel_group == group);
        let (group, kind) = (number.unwrap().0, ViolationKind::StoppedGroupRan);
        let mut effects = Vec::new();
        for _ in 0..2 {
            let what = String::new();
            effects = self.apply(Event::Checked(GroupFinding { group, kind, what, checks: None }));
            self.now += S;
        }
        effects
    }

    /// The groups that a process has under control, without those that are being released.
    pub(super) fn groups(&self, id: ProcessId) -> Vec<u32> {
        self.processes.contexts(id).map(|context| context.channel_group).collect()
    }
}
