//! The inputs and outputs of the controller: triggers, settings, planned hold kernels and refusals.

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
