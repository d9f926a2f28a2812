//! When a latency-critical process postpones its launches, because clients with an earlier deadline have urgent work.
//!
//! The manager shows on the grant page whether such work runs, or when it is expected. A burst is not begun if it would
//! not be over by then, by the usual duration of this process's bursts. Launches within a burst are postponed, too, once
//! the urgent work is due. The process thus leaves the GPU for a moment, without a control of the driver.
//!
//! Pure: the caller passes the time and waits.

mod durations;
#[cfg(test)]
mod tests;

use crate::hold_kernel::arrival_predictor::ArrivalPredictor;
use durations::RecentDurations;

/// Duration of a context switch. A burst that is shorter is never postponed: urgent work would gain less than that.
pub const SWITCH_NS: u64 = 190_000;

/// The longest time for which the launches of one burst are postponed in total.
pub const MAX_POSTPONED_NS: u64 = 5_000_000;

/// Expected urgent work postpones a burst at most this long before it is due. A burst that is longer cannot be over by
/// then; it only leaves the GPU to a request that is imminent.
const MAX_LEAD_NS: u64 = MAX_POSTPONED_NS / 2;

/// Urgent work that has not come by this time after it was expected counts no more. The manager withdraws it earlier.
const LATE_NS: u64 = 1_000_000;

/// A request is over when the process has been idle for this time: a context switch there and back.
pub(crate) const REQUEST_GAP_NS: u64 = 2 * SWITCH_NS;

/// Work of clients with an earlier deadline, as the manager shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrgentWork {
    /// There is none.
    None,
    /// It has been submitted and is not known to have finished.
    Now,
    /// It is expected at this time.
    At(u64),
}

impl UrgentWork {
    /// The meaning of the grant page's word.
    pub fn of_word(word: u64) -> Self {
        match word {
            0 => Self::None,
            sluice_comm::page::grant::URGENT_NOW => Self::Now,
            at => Self::At(at),
        }
    }
}

/// What the process reports about its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestForecast {
    /// When the next request is expected; 0: unknown.
    pub expected_ns: u64,
    /// The usual duration of a request; 0: unknown.
    pub service_ns: u64,
}

/// The bursts and requests of one device, and how long the present burst was postponed.
#[derive(Debug, Default)]
pub struct BurstAdmission {
    bursts: RecentDurations,
    requests: RecentDurations,
    arrivals: ArrivalPredictor,
    /// Begin of the last request, and end of its last burst.
    request_began_ns: u64,
    last_end_ns: Option<u64>,
    /// The first launch of the present burst.
    launched_ns: Option<u64>,
    /// For how long launches of the present burst, or of the one that is about to begin, were postponed.
    postponed_ns: u64,
}

impl BurstAdmission {
    /// Records that work was submitted while none ran.
    pub fn burst_began(&mut self, now_ns: u64) {
        let continues = self.last_end_ns.is_some_and(|end| now_ns < end.saturating_add(REQUEST_GAP_NS));
        if continues {
            return;
        }
        if let Some(end) = self.last_end_ns {
            self.requests.add(end.saturating_sub(self.request_began_ns));
        }
        self.request_began_ns = now_ns;
        self.arrivals.learn(now_ns);
    }

    /// Records a launch that passes. Returns a forecast at the first launch of a burst.
    pub fn launched(&mut self, now_ns: u64) -> Option<RequestForecast> {
        if self.launched_ns.is_some() {
            return None;
        }
        self.launched_ns = Some(now_ns);
        Some(RequestForecast {
            expected_ns: self.arrivals.next().map_or(0, |due| due.earliest_ns()),
            service_ns: self.requests.median().unwrap_or(0),
        })
    }

    /// Records that all work had finished at `end_ns`.
    pub fn burst_ended(&mut self, end_ns: u64) {
        if let Some(launched) = self.launched_ns.take() {
            self.bursts.add(end_ns.saturating_sub(launched));
        }
        self.last_end_ns = Some(end_ns);
        self.postponed_ns = 0;
    }

    /// For how long a launch is postponed at `now_ns` unless the urgent work changes before; `None`: it passes.
    pub fn postpone(&self, now_ns: u64, urgent: UrgentWork) -> Option<u64> {
        let left_ns = MAX_POSTPONED_NS.checked_sub(self.postponed_ns).filter(|left| *left > 0)?;
        match urgent {
            UrgentWork::None => None,
            _ if self.is_short() => None,
            UrgentWork::Now => Some(left_ns),
            UrgentWork::At(at) => {
                let over_ns = at.saturating_add(LATE_NS).checked_sub(now_ns).filter(|ns| *ns > 0)?;
                let fits = now_ns.saturating_add(self.lead_ns()) <= at;
                (!fits).then(|| over_ns.min(left_ns))
            }
        }
    }

    /// Adds time for which a launch was postponed.
    pub fn was_postponed(&mut self, ns: u64) {
        self.postponed_ns = self.postponed_ns.saturating_add(ns);
    }

    /// Whether later launches of the present burst may have to be postponed: the burst may last until urgent work is due.
    pub fn may_overlap(&self, now_ns: u64, urgent: UrgentWork) -> bool {
        let longest_ns = self.bursts.longest().unwrap_or(MAX_LEAD_NS);
        let is_due = |at: u64| now_ns.saturating_add(longest_ns).saturating_add(SWITCH_NS) > at;
        let matters = self.postponed_ns < MAX_POSTPONED_NS && longest_ns >= SWITCH_NS;
        matches!(urgent, UrgentWork::At(at) if matters && is_due(at))
    }

    /// How long before urgent work a launch is postponed: until a burst has usually ended, and the GPU was switched.
    fn lead_ns(&self) -> u64 {
        let burst_ns = if self.launched_ns.is_some() { 0 } else { self.bursts.median().unwrap_or(0) };
        burst_ns.saturating_add(SWITCH_NS).min(MAX_LEAD_NS)
    }

    /// Whether the bursts are shorter than a context switch.
    fn is_short(&self) -> bool {
        self.launched_ns.is_none() && self.bursts.median().is_some_and(|ns| ns < SWITCH_NS)
    }
}
