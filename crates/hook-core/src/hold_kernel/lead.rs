//! The time by which hold kernels of predicted requests lead beyond a context switch, and whether nearly all requests have one.
//!
//! The manager asks for it if a best-effort client could use a second channel group. That group has a time slice, which a hold kernel has
//! to wait for. A request without a hold kernel waits for it as well. So the process reports its lead only while such requests are too few
//! to show in its 99th percentile.

/// The longest lead, in nanoseconds: the shortest time slice of a second group.
const MAX_LEAD_NS: u64 = 1_000_000;

/// A lead is at most this part of the time between two requests: so much of the GPU's time it takes from other clients.
const INTERVAL_PARTS: f64 = 10.0;

/// A hold kernel that leads is launched so much earlier: the host launches it late, and requests come early.
pub(super) const SLACK_NS: u64 = 500_000;

/// Requests with a lead that make up for one without: 128 is fewer than one in a hundred.
const REQUESTS_PER_MISS: u32 = 128;

/// More misses than this that are not made up for end the lead, so two at once do not. It begins when all are made up for.
const LIMIT: u32 = 2 * REQUESTS_PER_MISS;

/// Requests with a lead before the first report. If the lead ends after that, all misses have to be made up for.
const FIRST_REQUESTS: u32 = 64;

/// The lead of a device's predicted hold kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    wanted_ns: u64,
    /// Requests with a lead that are missing.
    missing: u32,
    is_kept: bool,
}

impl Default for Lead {
    fn default() -> Self {
        Self { wanted_ns: 0, missing: FIRST_REQUESTS, is_kept: false }
    }
}

impl Lead {
    /// Sets the lead that the manager asks for. What was learned stays: a best-effort client decides how often that changes.
    pub(super) fn set_wanted(&mut self, wanted_ns: u64) {
        self.wanted_ns = wanted_ns.min(MAX_LEAD_NS);
    }

    /// Whether the manager asks for one.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted_ns > 0
    }

    /// The lead of the next hold kernel, if requests come at this interval.
    pub(super) fn at_interval(&self, interval_ns: f64) -> u64 {
        if self.wanted_ns as f64 * INTERVAL_PARTS <= interval_ns { self.wanted_ns } else { 0 }
    }

    /// Records a request: whether a hold kernel preceded it by `lead_ns` and a context switch, or by less.
    pub(super) fn learn(&mut self, lead_ns: Option<u64>) {
        if lead_ns.is_some_and(|lead_ns| lead_ns >= self.wanted_ns) {
            self.missing = self.missing.saturating_sub(1);
        } else {
            self.missing = (self.missing + REQUESTS_PER_MISS).min(LIMIT + REQUESTS_PER_MISS);
        }
        self.is_kept = self.missing == 0 || self.is_kept && self.missing <= LIMIT;
    }

    /// The lead that nearly all requests have, in nanoseconds; 0 if too few have it.
    pub(super) fn kept_ns(&self) -> u64 {
        if self.is_kept { self.wanted_ns } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: u64 = 1_000_000;

    fn wanted() -> Lead {
        let mut lead = Lead::default();
        lead.set_wanted(WANTED);
        lead
    }

    fn kept() -> Lead {
        let mut lead = wanted();
        (0..FIRST_REQUESTS).for_each(|_| lead.learn(Some(WANTED)));
        lead
    }

    #[test]
    fn lead_is_kept_from_64_requests_on_that_all_have_it() {
        let mut lead = wanted();
        for _ in 1..FIRST_REQUESTS {
            lead.learn(Some(WANTED));
            assert_eq!(lead.kept_ns(), 0);
        }
        lead.learn(Some(WANTED));
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn one_request_in_128_may_lack_it_and_three_at_once_end_it() {
        let mut lead = kept();
        for request in 0..10_000 {
            lead.learn((request % 130 != 0).then_some(WANTED));
            assert_eq!(lead.kept_ns(), WANTED, "request {request}");
        }
        lead = kept();
        for (miss, kept) in [(1, WANTED), (2, WANTED), (3, 0)] {
            lead.learn(Some(WANTED - 1));
            assert_eq!(lead.kept_ns(), kept, "miss {miss}");
        }
        (0..LIMIT).for_each(|_| lead.learn(Some(WANTED)));
        assert_eq!(lead.kept_ns(), 0, "three misses take longer to make up for than two");
        (0..REQUESTS_PER_MISS).for_each(|_| lead.learn(Some(WANTED)));
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn one_request_in_a_hundred_that_lacks_it_ends_it() {
        let mut lead = kept();
        (0..2_000).for_each(|request| lead.learn((request % 100 != 0).then_some(WANTED)));
        assert_eq!(lead.kept_ns(), 0);
    }

    #[test]
    fn misses_are_remembered_while_no_lead_is_wanted() {
        let mut lead = kept();
        (0..3).for_each(|_| lead.learn(None));
        lead.set_wanted(0);
        lead.set_wanted(WANTED);
        (0..LIMIT).for_each(|_| lead.learn(Some(WANTED)));
        assert_eq!(lead.kept_ns(), 0);
        lead = kept();
        lead.set_wanted(0);
        assert_eq!(lead.kept_ns(), 0);
        lead.set_wanted(WANTED);
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn lead_is_at_most_a_tenth_of_the_interval_and_a_millisecond() {
        let mut lead = kept();
        assert_eq!((lead.at_interval(9.9e6), lead.at_interval(1e7)), (0, WANTED));
        lead.set_wanted(u64::MAX);
        assert_eq!(lead.at_interval(1e8), WANTED);
        lead.set_wanted(0);
        assert_eq!((lead.at_interval(1e8), lead.kept_ns(), lead.is_wanted()), (0, 0, false));
    }
}
