//! Before a pod is refused, verifies that the pods which hold the needed GPUs still exist.
//!
//! The kube-scheduler may see a pod's end before the extender's watch does. A pod that is refused then is asked about
//! again only at the next event. So the extender asks the API server first, with as few requests as possible:
//!
//! * pods that are being deleted, if their end would make room: one request each ([`deleting`]);
//! * in a cluster with few pods: one list of all, because a pod that completes or is force-deleted gives no notice
//!   ([`listing`]).
//!
//! An answer counts for every filter call that came before its request. Both kinds have a rate limit: a thousand
//! waiting pods cause no more requests than ten.

mod deleting;
mod listing;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::extender::Extender;
use deleting::RequestLimiter;
use listing::ListSchedule;

/// Outcome of a recheck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecheckOutcome {
    /// Some of the pods have ended.
    Found,
    /// All of the pods still exist.
    Nothing,
    /// Some pods were not checked: too many, too often, or the API server did not answer in time.
    Unsure,
}

impl RecheckOutcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Nothing => "nothing",
            Self::Unsure => "unsure",
        }
    }
}

/// The rate limits. A filter call holds the lock during its recheck; calls that wait for the lock use its result.
#[derive(Debug)]
pub(crate) struct Recheck {
    by_pod: Mutex<RequestLimiter>,
    lists: Mutex<ListSchedule>,
}

impl Recheck {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { by_pod: Mutex::new(RequestLimiter::full(now)), lists: Mutex::new(ListSchedule::none(now)) }
    }
}

impl Extender {
    /// Counts the outcome. If pods have ended, reports a change of the index.
    pub(super) fn recheck_done(&self, outcome: RecheckOutcome) {
        self.metrics.record_recheck(outcome);
        if outcome == RecheckOutcome::Found {
            self.changed();
        }
    }
}
