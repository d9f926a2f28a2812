//! What happens to processes, what the caller does about it, and one event while it is applied.

use super::announcement::{Announcement, ControlDescriptorId, Origin};
use super::history::GrantPageMapping;
use super::note::Note;
use super::obstacle::Obstacle;
use super::violation::{Consequence, GroupFinding, ViolationKind};
use crate::channel_groups::{ControlOutcome, GroupId};
use crate::ids::{ClientId, ConnectionId, ProcessId, ProcessKey};
use crate::ledger::{ClientSpec, TokenLedger};
use sluice_comm::Channel;
use sluice_comm::attach::ContextHandles;

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event<P, D> {
    /// A client was added or changed. The token ledger knows that already.
    ClientChanged(ClientId, ClientFacts),
    /// A client's processes lose their connections, because it was removed.
    ClientRemoved(ClientId),
    /// A connection has become a channel of a process.
    ChannelOpened(ProcessId, Channel, ConnectionId),
    /// A connection has closed. The process can be kept if its end will be reported.
    ChannelClosed {
        /// The process.
        id: ProcessId,
        /// Which of its channels it was.
        channel: Channel,
        /// The connection. Another one may have taken its place.
        connection: ConnectionId,
        /// The end of the process will be reported.
        is_watched: bool,
    },
    /// The hook of a process has the answer to the ATTACH of its channel for grants, with which it announces its groups.
    Attached(ProcessId, Announcement<D>),
    /// The hook of an attached process announces its groups anew.
    Announced(ProcessId, Announcement<D>),
    /// The answer to [`Effect::Open`].
    Opened {
        /// The process.
        id: ProcessId,
        /// As in the effect.
        origin: Origin,
        /// As in the effect.
        contexts: Vec<ContextHandles>,
        /// The control descriptors, by the index that groups name. `None`: no group names it, or it is no control descriptor.
        descriptors: Vec<Option<ControlDescriptorId>>,
        /// Why one of them was not opened.
        failure: Option<String>,
    },
    /// The ownership check that [`Effect::Prove`] asks for was not made.
    NotChecked {
        /// The process.
        id: ProcessId,
        /// The number of the check.
        serial: u64,
        /// Why not.
        why: String,
        /// The manager is the cause, not the announcement.
        is_lack_of_room: bool,
    },
    /// The result of an ownership check.
    Proven(OwnershipProof),
    /// An attached process was inspected.
    InspectedAttached {
        /// The process.
        key: ProcessKey,
        /// The groups that it has.
        found: Result<Vec<ContextHandles>, Obstacle>,
        /// Its hook reports that it has groups which are not announced.
        has_unannounced: bool,
    },
    /// Another process was inspected.
    Inspected(Inspected<P, D>),
    /// A process maps another page than this grant page.
    MapsOtherPage(ProcessKey, GrantPageMapping),
    /// A check of channel groups has found something.
    Checked(GroupFinding),
    /// The threads of a process have stopped, or why they cannot be.
    ThreadsStopped(ProcessId, Result<(), String>),
    /// The control in flight has ended.
    ControlEnded(ControlOutcome),
    /// The kernel reports that a process has ended.
    Ended(ProcessId),
    /// The manager did not run from this time on: hooks have enabled their groups and restored the slices meanwhile.
    ManagerStopped(u64),
    /// A round of decisions begins.
    RoundBegins,
    /// A round of decisions has ended.
    RoundEnds,
    /// Time has passed: settings of kept groups count as unknown.
    TimePassed,
    /// The stop of a process has ended, or its postponed announcement may be made: one of [`Processes::due`](super::table::Processes::due).
    /// One at a time, because the groups that one announces count for the next one.
    Due(ProcessId),
    /// All that was due is done.
    DueEnded,
}

/// What was found at a process that does not announce its groups.
#[derive(Clone, Debug)]
pub struct Inspected<P, D> {
    /// The process.
    pub key: ProcessKey,
    /// Its client.
    pub client: ClientId,
    /// Its command name, for messages.
    pub command: String,
    /// Its groups, with the descriptors through which they are controlled.
    pub found: Result<Announcement<D>, Obstacle>,
    /// What the caller keeps with it if it is new.
    pub endpoint: P,
    /// Its hook reports that it has groups which are not announced.
    pub has_unannounced: bool,
}

/// The result of an ownership check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipProof {
    /// The process.
    pub process: ProcessId,
    /// The number of the check.
    pub serial: u64,
    /// Whether the process owns the groups; an error if it cannot be decided.
    pub owns: Result<bool, Obstacle>,
}

/// What the decisions about processes need to know of their client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientFacts {
    /// Its promise.
    pub spec: ClientSpec,
    /// It is a pod: its processes are recognised from outside.
    pub is_pod: bool,
}

/// Something that the caller does, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<D> {
    /// Open the control descriptors of these groups. [`Event::Opened`] follows before the next effect.
    Open(ProcessId, Origin, Announcement<D>),
    /// Have the ownership of these groups checked. [`Event::Proven`] or [`Event::NotChecked`] follows.
    Prove(ProcessId, u64, Announcement<D>),
    /// Control a group through this descriptor. A group that is known already is controlled through it from now on.
    Control(GroupId, ControlDescriptorId, ContextHandles),
    /// No more groups follow for a control descriptor.
    Seal(ControlDescriptorId),
    /// Control a group no longer.
    Forget(GroupId),
    /// A process may have become hardware-scheduled or token-scheduled: its page follows.
    SchedulingChanged(ProcessId),
    /// A new process is in the table: it runs without the hook.
    Added(ProcessId),
    /// The channel for grants of a process has closed: end what its page shows.
    TokenChannelClosed(ProcessId),
    /// The groups of a process that has closed its channel stay under control: nothing of its pages counts any more.
    Kept(ProcessId),
    /// Close a connection that another one has replaced.
    Close(ConnectionId),
    /// The process has closed its last connection: forget it.
    Disconnected(ProcessId),
    /// The last group of a departed process may be forgotten: its end may be of no interest any more.
    DepartureSettled(ProcessId),
    /// Load the driver's lock: a process cannot be controlled otherwise.
    LoadLocks,
    /// Search at once: a process is to be inspected.
    Search,
    /// Stop all threads of a process. [`Event::ThreadsStopped`] follows.
    StopThreads(ProcessId),
    /// Let the threads of a process run.
    ReleaseThreads(ProcessId),
    /// Record a violation by a process of this client.
    Violation(Violation),
    /// Log and count something about a process.
    Report(ProcessId, Note),
    /// Log why a process without the hook is not scheduled.
    NotScheduled {
        /// Its client.
        client: ClientId,
        /// Its number.
        pid: i32,
        /// Its command name.
        command: String,
        /// Why.
        obstacle: Obstacle,
    },
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The client.
    pub client: ClientId,
    /// The process, if its number is known.
    pub pid: Option<i32>,
    /// What it has done.
    pub kind: ViolationKind,
    /// The same in words.
    pub what: String,
    /// What follows.
    pub consequence: Consequence,
}

/// One event being applied: the ledger that it concerns, its time, and its effects so far.
pub(super) struct Step<'a, D> {
    pub(super) ledger: &'a mut TokenLedger,
    pub(super) now: u64,
    pub(super) effects: Vec<Effect<D>>,
}
