//! The current request, a predicted request, and the active hold kernel.

use super::conditions::{HoldPlan, Trigger};

/// Where a device is between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Work is on the GPU, or was never observed to finish.
    Running,
    /// No work is on the GPU; the next trigger begins a request.
    Armed,
    /// A request has begun and its first launch is still to come.
    Begun,
}

/// The current request, until the GPU is idle again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) trigger: Trigger,
    /// When its first call was made; `None` while that is still to come.
    pub(super) began_ns: Option<u64>,
    /// When its first launch would come if nothing had been learned.
    pub(super) announced_ns: u64,
    /// If no call was made by then, the request is forgotten.
    pub(super) expires_ns: u64,
    pub(super) with_hold: bool,
    /// The prediction, if it was predicted.
    pub(super) predicted: Option<PredictedRequest>,
}

/// A request that is expected at a certain time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PredictedRequest {
    pub(super) due_ns: u64,
    /// The hold kernel to be launched before it; `None` for a sample without one.
    pub(super) hold: Option<HoldPlan>,
    pub(super) released_by_launch: bool,
}

/// A hold kernel that is active or planned, and not released.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActiveHold {
    pub(super) ticket: u32,
    /// Released by the first launch; otherwise by a wait.
    pub(super) released_by_launch: bool,
}
