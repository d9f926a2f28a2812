//! What goes into the token ledger and what comes out.

use crate::ids::{ClientId, ProcessId};
use crate::share::Share;

/// How a process's part of a grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// Returns its grant when its work has drained.
    Returns,
    /// A Gemini peer: its grant ends by timer or when it asks again, and is charged as wall time; what ran past the
    /// deadline is told with its next request and charged then.
    ByTimer,
    /// Somebody else asks and returns for it, and stops it when the ledger says so; charged for the time that its client
    /// was [running](crate::ledger::TokenLedger::set_running) under the grant.
    Steered,
}

/// What a process says when it asks for the GPU, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Its longest burst; 0: unknown.
    pub burst_ns: u64,
    /// How far the last grant was overrun. Counts for peers whose grants end by timer, bounded by the time since.
    pub overuse_ns: u64,
}

/// Until when a grant allows launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// Until this time, nanoseconds.
    At(u64),
    /// Until it is taken back.
    Standing,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Every process returned it.
    Returned,
    /// The timer of a peer that cannot return it.
    Expired,
    /// The last process under it died.
    ProcessGone,
    /// It was not returned within the timeout.
    NotReturned,
    /// Its client was removed or changed class.
    Withdrawn,
    /// It is charged up to now; the client goes on, or is being stopped.
    Continued,
}

/// What the owner of the ledger has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Let a process run: open its page, answer its request.
    Grant {
        /// Who.
        process: ProcessId,
        /// Its client.
        client: ClientId,
        /// Number of the grant, the same for all processes under it.
        epoch: u64,
        /// Until when.
        deadline: Deadline,
        /// How long it waited.
        waited_ns: u64,
    },
    /// Move the deadline of a process: its client's turn goes on.
    Prolong {
        /// Who.
        process: ProcessId,
        /// Number of the grant.
        epoch: u64,
        /// Its deadline from now on, nanoseconds.
        deadline: u64,
    },
    /// The time of a process that is steered is up: stop it, then say [returned](crate::ledger::TokenLedger::returned).
    Stop {
        /// Who.
        process: ProcessId,
    },
    /// Close the page of a process: its grant was taken back.
    Revoke {
        /// Who.
        process: ProcessId,
        /// Why.
        why: End,
    },
    /// Tell the processes of a holder whether somebody waits.
    Contended {
        /// The holder.
        client: ClientId,
        /// Whether another client waits.
        contended: bool,
    },
    /// A grant is over and has been charged.
    Ended {
        /// Whose.
        client: ClientId,
        /// Wall time it lasted.
        held_ns: u64,
        /// GPU time charged.
        charged_ns: u64,
        /// How long past its deadline it ended.
        overrun_ns: u64,
        /// How it ended.
        how: End,
    },
}

/// What became of a returned grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The process's part is over.
    Accepted,
    /// The process ran under no grant (it came too late, or holds a standing one); nothing changed.
    NothingHeld,
}

/// Why an event was refused; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such client, or it was removed.
    #[error("client {0:?} is not in the ledger")]
    UnknownClient(ClientId),
    /// No such process, or it has gone.
    #[error("process {0:?} is not in the ledger")]
    UnknownProcess(ProcessId),
}

/// What a client has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Share of GPU time over the window.
    pub share: Share,
    /// GPU time charged since it was added, ns.
    pub charged_ns: u64,
    /// Time held since it was added, without the running grant, ns.
    pub held_ns: u64,
    /// Time that the running grant has lasted, ns.
    pub running_ns: u64,
}
