//! A generation: one record of an event.

use std::sync::Arc;

use crate::ids::{Context, Event, QueueId};
use crate::queue::Queue;

/// The engine's number of a generation; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GenerationId(pub(crate) u64);

/// The position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// In the host queue, at this position.
    Queued(QueueId, u64),
    /// In the driver.
    Submitted,
}

/// The gate in front of a submitted record.
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
    /// The event that the driver recorded for it, and its context.
    pub(crate) handle: Option<(Event, Context)>,
    pub(crate) place: RecordPlace,
    /// Uses that keep it: its own record while queued, waits, and calls in progress.
    pub(crate) pins: u32,
    pub(crate) behind: Option<GatePosition>,
}
