//! Inputs and outputs of the token ledger.

use crate::ids::{ClientId, ProcessId};

/// How a process's part in a grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnKind {
    /// The process returns its grant when its work has drained.
    Returns,
    /// A Gemini peer: its grant ends by timer or with its next request, and is charged as wall time. Overuse after the
    /// deadline is reported with the next request and charged then.
    ByTimer,
    /// The channel-group scheduler requests and returns for it, and disables it when the ledger decides so. Charged for
    /// the time that its client was [enabled](crate::ledger::TokenLedger::set_enabled) under the grant and no
    /// latency-critical client ran.
    HardwareScheduled,
}

/// Contents of a process's request, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantRequest {
    /// Its longest burst; 0: unknown.
    pub burst_ns: u64,
    /// Overuse of the last grant. Counts for peers whose grants end by timer, bounded by the time since.
    pub overuse_ns: u64,
}

/// Until when a grant allows launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// Until this time, nanoseconds.
    At(u64),
    /// Until it is revoked.
    Unlimited,
}

/// How a grant ended. The text is the name in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum GrantEnd {
    /// Every process returned it.
    Returned,
    /// The timer of a peer that cannot return it.
    Expired,
    /// The last process under it ended.
    ProcessGone,
    /// It was not returned within the timeout.
    NotReturned,
    /// Its client was removed or changed class.
    Withdrawn,
    /// Its latency-critical client is delayed: it has used its limit, or more than its request while another client lags.
    /// The ledger grants again by itself.
    Delayed,
    /// It was charged up to now. The client continues or is being disabled.
    Continued,
}

/// An action that the owner of the ledger must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Grant a process: open its page, answer its request.
    Grant {
        /// The process.
        process: ProcessId,
        /// Its client.
        client: ClientId,
        /// Number of the grant, the same for all processes under it.
        epoch: u64,
        /// Its end.
        deadline: Deadline,
        /// How long the process waited, nanoseconds.
        waited_ns: u64,
    },
    /// Move the deadline of a process: its client's grant was extended.
    Extend {
        /// The process.
        process: ProcessId,
        /// Number of the grant.
        epoch: u64,
        /// Its deadline from now on, nanoseconds.
        deadline: u64,
    },
    /// The quantum of a hardware-scheduled process has ended: disable it, then call
    /// [`returned`](crate::ledger::TokenLedger::returned).
    Disable {
        /// The process.
        process: ProcessId,
    },
    /// Close the page of a process: its grant was revoked.
    Revoke {
        /// The process.
        process: ProcessId,
        /// The reason.
        reason: GrantEnd,
    },
    /// Report to the processes of a holder whether another client waits, or has worked a moment ago.
    Contended {
        /// The client that holds the grant.
        client: ClientId,
        /// Whether one waits, or has worked.
        contended: bool,
    },
    /// A grant is over and has been charged.
    Ended {
        /// The client that held it.
        client: ClientId,
        /// Wall time it lasted.
        held_ns: u64,
        /// GPU time charged.
        charged_ns: u64,
        /// How long past its deadline it ended.
        overrun_ns: u64,
        /// Time in which its processes executed nothing while another client waited, as far as known.
        hold_and_wait_ns: u64,
        /// How it ended.
        how: GrantEnd,
    },
}

/// Result of returning a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The process's part in the grant has ended.
    Accepted,
    /// The process held no such grant (it was too late, or its grant is unlimited). Nothing changed.
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

/// GPU time of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// GPU time charged since it was added, without the running grant, ns.
    pub charged_ns: u64,
    /// Time held since it was added, without the running grant, ns.
    pub held_ns: u64,
    /// GPU time of the running grant that is not charged yet, ns: the time held, without what latency-critical clients used.
    pub running_ns: u64,
    /// Time for which a process of this latency-critical client waited because its client was delayed, ns.
    pub delayed_ns: u64,
}
