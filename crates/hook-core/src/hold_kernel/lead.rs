//! The time by which hold kernels of predicted requests lead beyond a context switch, and whether nearly all requests have one.
//!
//! The manager asks for it if a best-effort client could use a second channel group. That group has a time slice, which a hold kernel has
//! to wait for. A request without a hold kernel waits for it as well. So the process reports its lead only while such requests are too few
//! to show in its 99th percentile.

/// The longest lead, in nanoseconds: the shortest time slice of a second group.
const MAX_LEAD_NS: u64 = 1_000_000;

/// A lead is at most this part of the time between two requests, with its slack: so much of the GPU's time it takes from other clients.
const INTERVAL_PARTS: f64 = 10.0;

/// A hold kernel that leads is launched so much earlier: the host launches it late, and requests come early.
pub(super) const SLACK_NS: u64 = 500_000;

/// Requests that make up for one that had no lead and waited for a second group: 128 is fewer than one in a hundred.
const REQUESTS_PER_MISS: u32 = 128;

/// More such misses than this that are not made up for end the lead, so four do not. Two are usual after a pause of the program: the first
/// request, and the next one because the first was late.
const LIMIT: u32 = 4 * REQUESTS_PER_MISS;

/// The lead begins when no more than this is to be made up for, after so many requests in a row that had one.
const BEGIN_LIMIT: u32 = 2 * REQUESTS_PER_MISS;
const REQUESTS_IN_A_ROW: u32 = 32;

/// The lead of a device's predicted hold kernels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lead {
    wanted_ns: u64,
    /// A request without a lead waits for a second group.
    second_group: bool,
    /// Successive requests with a lead.
    in_a_row: u32,
    /// Requests that are missing to make up for those without a lead that waited for a second group. All others count.
    missing: u32,
    is_kept: bool,
}

impl Lead {
    /// Sets the lead that the manager asks for. What is to be made up for stays: a best-effort client decides how often that changes.
    pub(super) fn set_wanted(&mut self, wanted_ns: u64, second_group: bool) {
        (self.wanted_ns, self.second_group) = (wanted_ns.min(MAX_LEAD_NS), second_group);
        if wanted_ns == 0 {
            (self.in_a_row, self.is_kept) = (0, false);
        }
    }

    /// Whether the manager asks for one.
    fn is_wanted(&self) -> bool {
        self.wanted_ns > 0
    }

    /// Whether a hold kernel may wait for a second group.
    pub(super) fn has_second_group(&self) -> bool {
        self.second_group
    }

    /// The lead of the next hold kernel, if requests come at this interval.
    pub(super) fn at_interval(&self, interval_ns: f64) -> u64 {
        let takes_ns = (self.wanted_ns + SLACK_NS) as f64;
        if takes_ns * INTERVAL_PARTS <= interval_ns { self.wanted_ns } else { 0 }
    }

    /// Records a request: whether a hold kernel preceded it by `lead_ns` and a context switch, or by less.
    pub(super) fn learn(&mut self, lead_ns: Option<u64>) {
        let is_led = lead_ns.is_some_and(|lead_ns| self.is_wanted() && lead_ns >= self.wanted_ns);
        if !is_led && self.second_group {
            self.missing = (self.missing + REQUESTS_PER_MISS).min(LIMIT + REQUESTS_PER_MISS);
        } else {
            self.missing = self.missing.saturating_sub(1);
        }
        self.in_a_row = if is_led { self.in_a_row.saturating_add(1) } else { 0 };
        let begins = self.in_a_row >= REQUESTS_IN_A_ROW && self.missing <= BEGIN_LIMIT;
        // Without a second group it costs nothing to begin again.
        let stays = self.missing <= LIMIT && (is_led || self.second_group);
        self.is_kept = begins || self.is_kept && stays;
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

    fn learn(lead: &mut Lead, led: u32) {
        (0..led).for_each(|_| lead.learn(Some(WANTED)));
    }

    /// The manager asks for a lead, and enables a second group where the lead is reported.
    fn ask(lead: &mut Lead) {
        lead.set_wanted(WANTED, lead.kept_ns() > 0);
    }

    fn wanted() -> Lead {
        let mut lead = Lead::default();
        ask(&mut lead);
        lead
    }

    fn kept() -> Lead {
        let mut lead = wanted();
        learn(&mut lead, REQUESTS_IN_A_ROW);
        ask(&mut lead);
        lead
    }

    #[test]
    fn lead_is_kept_from_32_requests_in_a_row_on_that_have_it() {
        let mut lead = wanted();
        learn(&mut lead, REQUESTS_IN_A_ROW - 1);
        lead.learn(Some(WANTED - 1));
        learn(&mut lead, REQUESTS_IN_A_ROW - 1);
        assert_eq!(lead.kept_ns(), 0);
        lead.learn(Some(WANTED));
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn one_request_in_128_may_lack_it_and_the_fifth_that_is_not_made_up_for_ends_it() {
        let mut lead = kept();
        for request in 0..10_000 {
            lead.learn((request % 130 != 0).then_some(WANTED));
            assert_eq!(lead.kept_ns(), WANTED, "request {request}");
        }
        lead = kept();
        for (miss, kept) in [(1, WANTED), (2, WANTED), (3, WANTED), (4, WANTED), (5, 0)] {
            lead.learn(None);
            assert_eq!(lead.kept_ns(), kept, "miss {miss}");
            learn(&mut lead, 10);
        }
        learn(&mut lead, 2 * REQUESTS_PER_MISS);
        assert_eq!(lead.kept_ns(), 0, "half is made up for first");
        learn(&mut lead, REQUESTS_PER_MISS);
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn request_without_it_ends_it_at_once_and_is_not_to_be_made_up_for_while_no_second_group_is_enabled() {
        let mut lead = kept();
        lead.set_wanted(WANTED, false);
        (0..100).for_each(|_| lead.learn(None));
        assert_eq!(lead.kept_ns(), 0);
        learn(&mut lead, REQUESTS_IN_A_ROW);
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn fewer_than_one_request_in_a_hundred_lacks_it_beside_a_second_group() {
        // However often requests lack it.
        for interval in 1..200 {
            let (mut lead, mut missed) = (wanted(), 0);
            for request in 0..100_000 {
                ask(&mut lead);
                let is_led = request % interval != 0;
                missed += u32::from(lead.kept_ns() > 0 && !is_led);
                lead.learn(is_led.then_some(WANTED));
            }
            assert!(missed < 1_000, "{missed} of 100,000 if one in {interval} has no lead");
        }
    }

    #[test]
    fn misses_are_to_be_made_up_for_also_if_no_lead_is_wanted_meanwhile() {
        let mut lead = kept();
        (0..4).for_each(|_| lead.learn(None));
        lead.set_wanted(0, false);
        lead.set_wanted(WANTED, false);
        learn(&mut lead, REQUESTS_PER_MISS);
        assert_eq!(lead.kept_ns(), 0);
        learn(&mut lead, REQUESTS_PER_MISS);
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn lead_that_was_not_wanted_meanwhile_has_to_be_shown_again() {
        let mut lead = kept();
        lead.set_wanted(0, false);
        ask(&mut lead);
        assert_eq!(lead.kept_ns(), 0);
        learn(&mut lead, REQUESTS_IN_A_ROW);
        assert_eq!(lead.kept_ns(), WANTED);
    }

    #[test]
    fn lead_is_at_most_a_tenth_of_the_interval_and_a_millisecond() {
        let mut lead = kept();
        assert_eq!((lead.at_interval(14.9e6), lead.at_interval(1.5e7)), (0, WANTED));
        lead.set_wanted(u64::MAX, true);
        assert_eq!(lead.at_interval(1e8), WANTED);
        lead.set_wanted(0, true);
        assert_eq!((lead.at_interval(1e8), lead.kept_ns(), lead.is_wanted()), (0, 0, false));
    }
}
