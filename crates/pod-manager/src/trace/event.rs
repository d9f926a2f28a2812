//! What a trace consists of. A reader receives one event a line, as JSON.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A name of a fixed set.
pub type Label = Cow<'static, str>;

/// An event. Clients and processes have the numbers that [`TraceEvent::Client`] and [`TraceEvent::Process`] name, which may follow later.
/// Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceEvent {
    /// The reader has all events up to this time. The first one is the begin of the trace.
    Time {
        /// The time.
        at_ns: u64,
    },
    /// The name of a client.
    Client {
        /// Its number.
        client: u64,
        /// `namespace/pod`, or the name in the resource file.
        name: String,
    },
    /// A process of a client.
    Process {
        /// Its number.
        process: u64,
        /// Its client.
        client: u64,
        /// Its pid in the manager's pid namespace, if that is known.
        pid: Option<i32>,
    },
    /// A decision of the token ledger.
    Decision {
        /// When.
        at_ns: u64,
        /// The client.
        client: u64,
        /// The process; `None`: all processes of the client that held the grant.
        process: Option<u64>,
        /// What was decided.
        decision: Decision,
    },
    /// A quantum began: the process may use the GPU until the quantum ends. A token-scheduled process holds a grant; a hardware-scheduled one
    /// has an enabled channel group, too.
    QuantumBegan {
        /// When.
        at_ns: u64,
        /// The process.
        process: u64,
    },
    /// A quantum ended.
    QuantumEnded {
        /// When.
        at_ns: u64,
        /// The process.
        process: u64,
    },
    /// A control of a channel group.
    Control {
        /// When it began.
        begin_ns: u64,
        /// How long the driver took, nanoseconds.
        took_ns: u64,
        /// The number of the group.
        group: u64,
        /// The client of the group, if it still has one.
        client: Option<u64>,
        /// `stop`, `start` or `slice`, as in `sluice_controls_total`.
        control: Label,
        /// The new time slice, microseconds.
        slice_us: Option<u64>,
        /// `done`, `failed` or `gone`, as in `sluice_controls_total`.
        outcome: Label,
    },
    /// Hold kernels of a latency-critical process have kept the GPU. The process reports the sum when one has ended, so only the end is known,
    /// to within the time between two readings.
    Hold {
        /// When that was read.
        at_ns: u64,
        /// The process.
        process: u64,
        /// For how long, nanoseconds.
        held_ns: u64,
    },
    /// A latency-critical process used the GPU for itself.
    Work {
        /// From when on.
        begin_ns: u64,
        /// Until when.
        end_ns: u64,
        /// The process.
        process: u64,
    },
    /// Requests of a latency-critical process have ended since the last reading.
    Requests {
        /// When that was read.
        at_ns: u64,
        /// The process.
        process: u64,
        /// How many.
        count: u64,
        /// Their durations together, nanoseconds.
        sum_ns: u64,
    },
    /// From now on the gang of a client has this slot in each cycle.
    GangSlot {
        /// When.
        at_ns: u64,
        /// The client.
        client: u64,
        /// First nanosecond of the slot, counted from the beginning of the cycle.
        start_ns: u64,
        /// First nanosecond after the slot.
        end_ns: u64,
        /// Length of a cycle, nanoseconds.
        cycle_ns: u64,
    },
    /// From now on a client has no slot.
    GangSlotEnded {
        /// When.
        at_ns: u64,
        /// The client.
        client: u64,
    },
    /// Events that the reader has missed: the ring was full before it read them.
    Lost {
        /// When the reader was told.
        at_ns: u64,
        /// How many.
        count: u64,
    },
}

/// A decision of the token ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// The process is granted.
    Granted {
        /// Why, a label of [`GrantReason`](sluice_core::ledger::GrantReason).
        reason: Label,
        /// How long it had waited, nanoseconds.
        waited_ns: u64,
        /// Until when it may submit work; `None`: until the grant is revoked.
        until_ns: Option<u64>,
        /// Its quanta are enforced through its channel groups.
        by_groups: bool,
    },
    /// The grant of the process lasts longer.
    Extended {
        /// Until then.
        until_ns: u64,
    },
    /// The quantum of the process is over: its channel groups are to be disabled.
    Disabled,
    /// The grant of the process is revoked.
    Revoked {
        /// Why, a label of [`GrantEnd`](sluice_core::ledger::GrantEnd).
        reason: Label,
    },
    /// The client was charged for its grant.
    Charged {
        /// How the grant ended, a label of [`GrantEnd`](sluice_core::ledger::GrantEnd).
        reason: Label,
        /// Wall time of the grant, nanoseconds.
        held_ns: u64,
        /// GPU time charged, nanoseconds.
        charged_ns: u64,
        /// How long past its deadline the grant ended, nanoseconds.
        overrun_ns: u64,
    },
}
