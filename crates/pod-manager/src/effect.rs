//! What a part wants done beyond its own state. The event loop carries effects out in the order in which they were returned.

use crate::connections::{ConnectionId, Reason};
use sluice_comm::ResponseBody;
use sluice_core::ProcessId;

/// One effect.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send an answer; close the connection if that fails.
    Answer { connection: ConnectionId, request: i32, body: ResponseBody },
    /// Log why a connection is closed, count it and close it.
    Close { connection: ConnectionId, reason: Reason },
    /// A process may have become hardware-scheduled or token-scheduled: its page follows.
    SchedulingChanged(ProcessId),
    /// Return a process's groups to the driver's defaults and control them no longer.
    ReleaseGroups(ProcessId),
    /// The last group of a departed process may be forgotten: its end may be of no interest any more.
    DepartureSettled(ProcessId),
    /// Inspect a process again at once, if it runs without the hook.
    InspectAgain(ProcessId),
    /// A control of a process failed and its client's groups were released. `had_failed`: a control of another process of the client
    /// had failed before.
    ControlFailed { process: ProcessId, had_failed: bool },
}

/// Effects in the order in which they are to be carried out.
pub(crate) type Effects = Vec<Effect>;
