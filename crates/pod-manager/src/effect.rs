//! What a part wants done beyond its own state. The event loop carries effects out in the order in which they were returned.

use crate::connections::ConnectionId;
use sluice_comm::ResponseBody;
use sluice_core::ProcessId;

/// One effect.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send an answer; close the connection if that fails.
    Answer { connection: ConnectionId, request: i32, body: ResponseBody },
    /// A process may have become hardware-scheduled or token-scheduled: its page follows.
    SchedulingChanged(ProcessId),
    /// Return a process's groups to the driver's defaults and control them no longer.
    ReleaseGroups(ProcessId),
    /// The last group of a departed process may be forgotten: its end may be of no interest any more.
    DepartureSettled(ProcessId),
    /// Inspect a process again at once, if it runs without the hook.
    InspectAgain(ProcessId),
}

/// Effects in the order in which they are to be carried out.
pub(crate) type Effects = Vec<Effect>;
