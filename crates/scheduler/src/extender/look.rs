//! Before a pod is refused: are those that stand in its way still there?
//!
//! The kube-scheduler may see a pod's end before our watch does. What we refuse then it asks about again only when
//! something else happens. So the API server is asked first, about as little as will do: pods that are being deleted, if
//! the end of theirs would make room, one by one; and in a cluster of few pods, where that is cheap, which are left of all,
//! for a pod that completes or is deleted at once gives no notice. An answer counts for every question that came before
//! it was asked for, and both kinds are rationed: a thousand pods that wait make no more requests than ten.

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::ending::Ration;
use super::extender::Extender;
use super::left::Lists;

/// What a second look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Some have ended.
    Found,
    /// All are still there.
    Nothing,
    /// Not all were looked at: too many, too often, or the API server did not answer in time.
    Unsure,
}

impl Look {
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
pub(crate) struct Looker {
    pub(super) singly: Mutex<Ration>,
    pub(super) lists: Mutex<Lists>,
}

impl Looker {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { singly: Mutex::new(Ration::full(now)), lists: Mutex::new(Lists::none(now)) }
    }
}

impl Extender {
    /// What was found is counted, and is a change as the watches make them.
    pub(super) fn looked(&self, look: Look) {
        self.metrics.looked(look);
        if look == Look::Found {
            self.changed();
        }
    }
}
