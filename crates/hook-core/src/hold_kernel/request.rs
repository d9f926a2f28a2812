//! Triggers, settings, planned hold kernels, refusals, and requests.

/// Largest error of a first launch from which is learned, in budgets.
const MAX_LEARNED_BUDGETS: u64 = 4;

/// The event that begins a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request's input is about to be copied.
    Copy,
    /// A request begins with a launch.
    Launch,
    /// Requests arrive at regular intervals, and the next one is due.
    Predicted,
    /// The program announced it by `sluice_hint`.
    Hint,
}

/// Settings of a device's hold kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether copies, launches and predictions trigger hold kernels.
    pub automatic: bool,
    /// Whether the program's hints trigger hold kernels.
    pub by_hint: bool,
    /// The longest time that a hold kernel may run, in nanoseconds.
    pub budget_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { automatic: true, by_hint: true, budget_ns: 2_000_000 }
    }
}

impl Settings {
    /// Largest error of a first launch from which is learned, in nanoseconds.
    pub(super) fn max_learned_ns(&self) -> u64 {
        self.budget_ns.saturating_mul(MAX_LEARNED_BUDGETS)
    }
}

/// A hold kernel to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldPlan {
    /// Its number: counts up, modulo 2^32, and is never 0.
    pub ticket: u32,
    /// When to launch it.
    pub starts_ns: u64,
    /// Its timeout, in nanoseconds of GPU time.
    pub timeout_ns: u64,
}

impl HoldPlan {
    /// When it ends if the host does not release it and it gets the GPU after `cost_ns`.
    pub(super) fn ends_ns(&self, cost_ns: u64) -> u64 {
        self.starts_ns.saturating_add(cost_ns).saturating_add(self.timeout_ns)
    }
}

/// Why no hold kernel is to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldRefusal {
    /// The configuration does not allow it, or the process is not latency-critical.
    Disabled,
    /// No other client uses the GPU.
    NoContenders,
    /// The process has work on the GPU.
    Running,
    /// The request has already begun.
    AlreadyBegun,
    /// Hold kernels do not shorten requests, or this request is a sample without one.
    NotWorthIt,
    /// The lead is longer than one second.
    TooFarAhead,
}

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
