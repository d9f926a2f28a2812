//! Triggers, settings, planned hold kernels, refusals, and requests.

use super::copies::CopyChoice;
use super::tested::Tested;

/// A hold kernel of a whole request ends if the host changes nothing for this time: one quantum. It bounds what a stopped process costs.
pub(super) const MAX_STILL_NS: u64 = 50_000_000;

/// The longest time of one hold kernel of a whole request. The next burst of work begins another one.
const MAX_WHOLE_NS: u64 = 1_000_000_000;

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
    /// Whether hold kernels span the gaps between the bursts of a request, as far as that is learned to pay.
    pub whole_requests: bool,
    /// How long a hold kernel may wait for its request, in nanoseconds.
    pub budget_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { automatic: true, by_hint: true, whole_requests: true, budget_ns: 2_000_000 }
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
    /// How long it waits for the request, in nanoseconds of GPU time.
    pub timeout_ns: u64,
    /// If it is to span the whole request: how long it stays without work.
    pub linger_ns: Option<u64>,
}

/// After which times a hold kernel ends by itself, in nanoseconds of the GPU's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HoldLimits {
    /// Until the activity first changes.
    pub timeout_ns: u64,
    /// Then, while the activity is even and does not change.
    pub linger_ns: u64,
    /// While the activity is odd and does not change.
    pub still_ns: u64,
    /// In any case.
    pub longest_ns: u64,
}

impl HoldPlan {
    /// The kernel's parameters.
    pub fn limits(&self) -> HoldLimits {
        HoldLimits {
            timeout_ns: self.timeout_ns,
            linger_ns: self.linger_ns.unwrap_or(0),
            still_ns: MAX_STILL_NS,
            longest_ns: if self.linger_ns.is_some() { MAX_WHOLE_NS } else { self.timeout_ns },
        }
    }

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
    /// A launch would have to wait now: for a grant, or for urgent work of another client.
    LaunchWaits,
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

/// The current request: until the GPU is idle, or for longer than the linger time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) trigger: Trigger,
    /// When the first call of the current burst was made; `None` while that is still to come.
    pub(super) began_ns: Option<u64>,
    /// When its first launch would come if nothing had been learned.
    pub(super) announced_ns: u64,
    /// If no call was made by then, the request is forgotten.
    pub(super) expires_ns: u64,
    pub(super) with_hold: bool,
    /// Which engine makes its copies.
    pub(super) copies: CopyChoice,
    /// The prediction, if it was predicted.
    pub(super) predicted: Option<PredictedRequest>,
    /// How long the process may be idle within it.
    pub(super) linger_ns: u64,
    /// Since when the process is idle within it.
    pub(super) idle_since_ns: Option<u64>,
    /// A wait for the whole context has ended its hold kernel, or the bursts outlast them. Another one would be ended as well.
    pub(super) is_interrupted: bool,
    /// Hold kernels that ended within a burst, because nothing changed for [`MAX_STILL_NS`].
    pub(super) outlasted: u8,
    pub(super) bursts: BurstTimes,
}

/// The bursts of work of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BurstTimes {
    pub(super) ended: u32,
    /// Number and sum of the durations that were observed exactly.
    timed: u64,
    sum_ns: u64,
}

impl BurstTimes {
    pub(super) fn add(&mut self, lasted_ns: Option<u64>) {
        self.ended = self.ended.saturating_add(1);
        if let Some(ns) = lasted_ns {
            self.timed += 1;
            self.sum_ns = self.sum_ns.saturating_add(ns);
        }
    }

    /// The mean duration, which is comparable between requests of different lengths.
    pub(super) fn mean_ns(self) -> Option<u64> {
        self.sum_ns.checked_div(self.timed)
    }
}

/// A request that is expected at a certain time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PredictedRequest {
    pub(super) due_ns: u64,
    /// The hold kernel to be launched before it; `None` for a sample without one.
    pub(super) hold: Option<HoldPlan>,
    pub(super) ends: HoldEnd,
    /// By how much the hold kernel leads, besides the time of a context switch.
    pub(super) lead_ns: u64,
    /// When it was launched.
    pub(super) launched_ns: Option<u64>,
}

impl PredictedRequest {
    /// The benefit test that learns from the request. None does while a lead is wanted: then there are no requests without it to compare
    /// with.
    pub(super) fn tested(&self) -> Option<Tested> {
        (self.lead_ns == 0).then_some(Tested::Predicted)
    }
}

/// What ends a hold kernel, besides its limits and a wait for the whole context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldEnd {
    /// The request's first launch.
    Launch,
    /// The next wait of the host.
    Wait,
    /// Nothing: it ends by itself when the request is over.
    Request,
}

/// A hold kernel that is active or planned, and not released.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActiveHold {
    pub(super) ticket: u32,
    pub(super) ends: HoldEnd,
}
