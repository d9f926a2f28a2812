//! One record of an event.

use std::sync::Arc;

use crate::ids::{Context, Event, QueueId};
use crate::queue::Queue;

/// The engine's number of a generation; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GenerationId(pub(crate) u64);

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// In the host queue, at this position.
    Queued(QueueId, u64),
    /// In the driver.
    Submitted,
}

/// The gate that a record was submitted behind.
#[derive(Debug, Clone)]
pub(crate) struct GatePosition {
    pub(crate) queue: Arc<Queue>,
    pub(crate) gate: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The program's event.
    pub(crate) event: Event,
    /// What stands for it in the driver, and the context that it belongs to.
    pub(crate) handle: Option<(Event, Context)>,
    pub(crate) place: RecordPlace,
    /// Who still means it: its record while queued, waits and callers.
    pub(crate) pins: u32,
    pub(crate) behind: Option<GatePosition>,
}
