//! What the machine is asked and what it answers.

/// How far off a first launch may be and still teach something, in budgets.
const LEARNT_BUDGETS: u64 = 4;

/// What may begin a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request's input is about to be copied.
    Copy,
    /// A request begins with a launch.
    Launch,
    /// Requests come at a steady pace, and the next one is due.
    Predicted,
    /// The program says so.
    Hint,
}

/// Settings of a device's hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether copies, launches and the pace of requests begin holds.
    pub automatic: bool,
    /// Whether the program may ask for holds.
    pub by_hint: bool,
    /// The longest hold, in nanoseconds.
    pub budget_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { automatic: true, by_hint: true, budget_ns: 2_000_000 }
    }
}

impl Settings {
    /// How far off a first launch may be and still teach something, in nanoseconds.
    pub(super) fn max_learned_ns(&self) -> u64 {
        self.budget_ns.saturating_mul(LEARNT_BUDGETS)
    }
}

/// A hold to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldPlan {
    /// Its number: counts up, modulo 2^32, and is never 0.
    pub ticket: u32,
    /// When to launch it; now, or later.
    pub starts_ns: u64,
    /// How long it may hold, in nanoseconds of the GPU's time.
    pub timeout_ns: u64,
}

impl HoldPlan {
    /// When it ends if the host does not release it and it gets the GPU after `cost_ns`.
    pub(super) fn ends_ns(&self, cost_ns: u64) -> u64 {
        self.starts_ns.saturating_add(cost_ns).saturating_add(self.timeout_ns)
    }
}

/// Why nothing is to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoldRefusal {
    /// Not asked to by the configuration, or the process is not latency-critical.
    #[error("hints are off")]
    Disabled,
    /// Nobody else uses the GPU.
    #[error("nobody else uses the GPU")]
    NoContenders,
    /// The process has work on the GPU.
    #[error("the GPU is in use by this process")]
    Running,
    /// The request has begun already.
    #[error("the request has begun")]
    AlreadyBegun,
    /// Holds were found not to pay, or this request is one to compare with.
    #[error("not for this request")]
    NotWorthIt,
    /// Further away than the program can know.
    #[error("too far ahead")]
    TooFarAhead,
}
