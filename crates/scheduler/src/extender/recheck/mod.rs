//! Before a pod is refused: are those that stand in its way still there?
//!
//! The kube-scheduler may see a pod's end before our watch does. What we refuse then it asks about again only when
//! something else happens. So the API server is asked first, about as little as will do: pods that are being deleted, if
//! the end of theirs would make room, one by one; and in a cluster of few pods, where that is cheap, which are left of all,
//! for a pod that completes or is deleted at once gives no notice. An answer counts for every question that came before
//! it was asked for, and both kinds are rationed: a thousand pods that wait make no more requests than ten.

mod deleting;
mod listing;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::extender::Extender;
use deleting::RequestBudget;
use listing::ListSchedule;

/// What a second look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecheckOutcome {
    /// Some have ended.
    Found,
    /// All are still there.
    Nothing,
    /// Not all were looked at: too many, too often, or the API server did not answer in time.
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

/// When was what looked at. Who looks holds the lock meanwhile, and who comes then takes what it found.
#[derive(Debug)]
pub(crate) struct Recheck {
    pub(super) by_pod: Mutex<RequestBudget>,
    pub(super) lists: Mutex<ListSchedule>,
}

impl Recheck {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { by_pod: Mutex::new(RequestBudget::full(now)), lists: Mutex::new(ListSchedule::none(now)) }
    }
}

impl Extender {
    /// What was found is counted, and is a change as the watches make them.
    pub(super) fn recheck_done(&self, outcome: RecheckOutcome) {
        self.metrics.rechecked(outcome);
        if outcome == RecheckOutcome::Found {
            self.changed();
        }
    }
}
