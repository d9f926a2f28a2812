//! How long after a request the gates stay closed: as long as the pauses inside requests last, which is learned.

use crate::steering::Activity;

/// The shortest patience, nanoseconds: pauses below it are not told from work.
const LEAST_NS: u64 = 50_000;
/// Requests in a row without a pause inside after which the patience is halved: fewer than one in a hundred is to find the gates open
/// in its middle.
const REQUESTS: u32 = 128;

/// Learns from what all latency-critical processes together do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Patience {
    /// The longest that there can be.
    most_ns: u64,
    /// The longest pause inside a request that is remembered.
    pause_ns: u64,
    /// Pauses between requests since then.
    requests: u32,
    /// Since when all of them have been idle, when last seen.
    idle_since: Option<u64>,
}

impl Patience {
    /// Nothing learned yet: as patient as can be.
    pub(super) fn new(most_ns: u64) -> Self {
        Self { most_ns, pause_ns: most_ns, requests: 0, idle_since: None }
    }

    /// How long all have to be idle.
    pub(super) fn ns(&self) -> u64 {
        self.pause_ns.saturating_add(self.pause_ns / 2).max(LEAST_NS).min(self.most_ns)
    }

    /// Takes in what they do; since when all are idle, if they are.
    pub(super) fn observe(&mut self, critical: impl Iterator<Item = Activity> + Clone) -> Option<u64> {
        let busy_since = critical.clone().filter(|activity| activity.busy).map(|busy| busy.since_ns).min();
        let last = critical.map(|activity| activity.since_ns).max();
        let idle_since = last.filter(|_| busy_since.is_none());
        if let Some(before) = self.idle_since
            && idle_since != self.idle_since
            && let Some(ended) = busy_since.or(last)
            // Somebody who was idle for less long than the others may have left: that is the end of no pause.
            && let Some(pause_ns) = ended.checked_sub(before)
        {
            // Busy and idle again unseen: the pause was shorter than this.
            self.learn(pause_ns);
        }
        self.idle_since = idle_since;
        idle_since
    }

    fn learn(&mut self, pause_ns: u64) {
        if pause_ns < self.most_ns {
            self.pause_ns = self.pause_ns.max(pause_ns);
            self.requests = 0;
            return;
        }
        self.requests += 1;
        if self.requests >= REQUESTS {
            self.requests = 0;
            self.pause_ns /= 2;
        }
    }
}
