//! How far one process takes precedence over clients with a later deadline.

use super::{DeadlinePolicy, Service, UrgentWork};
use sluice_rate_limiter::{Rate, RateLimiter};

/// The vain-expectation budget is refilled by 1 ns in this time, nanoseconds: 1 %.
const VAIN_REFILL: u64 = 100;

/// State of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Precedence {
    /// The running request, or the last one: its begin, and its end if the process has been seen idle since.
    request: Option<(u64, Option<u64>)>,
    /// The request that is expected, while it is to come or late.
    expected_ns: Option<u64>,
    /// An expectation that was in vain, as it still stands on the report page.
    vain_ns: u64,
    /// Budget for expectations in vain; made with the first one.
    vain: Option<RateLimiter>,
    /// Until when expectations are ignored, because the budget is spent.
    ignored_until: u64,
    /// When the running request has lasted so long that it counts no more.
    counts_until: u64,
    /// Its client has precedence over another one.
    is_taken: bool,
}

impl Precedence {
    /// Whether the client of this process has precedence over another one.
    pub(super) const fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// The state of a process whose client has precedence over no other one.
    pub(super) fn not_taken(self) -> Self {
        Self { is_taken: false, ..self }
    }

    /// The work of this process that is urgent for later clients.
    pub(super) fn update(&mut self, policy: &DeadlinePolicy, now: u64, service: &Service) -> UrgentWork {
        self.is_taken = true;
        let activity = service.activity.known_at(now);
        let busy = activity.busy && !service.postponed;
        self.follow_request(policy, busy, activity.since_ns);
        self.follow_expectation(policy, now, service);
        if !service.within_request {
            return UrgentWork::None;
        }
        let usual_ns =
            service.service_ns.min(policy.max_service_ns).saturating_mul(2).saturating_add(policy.switch_ns);
        let longest = if service.service_ns == 0 { policy.unknown_service_ns } else { usual_ns };
        self.counts_until = self.request.map_or(0, |(began, _)| began.saturating_add(longest));
        let expected = self.expected_ns.filter(|_| now >= self.ignored_until);
        let is_running = match self.request {
            Some((_, None)) => true,
            // A pause within a request, unless the process has reported when the next request comes.
            Some((_, Some(ended))) => {
                service.expected_ns <= now && now < ended.saturating_add(policy.request_gap_ns)
            }
            None => false,
        };
        match expected {
            _ if is_running && now < self.counts_until => UrgentWork::Now,
            Some(at) => UrgentWork::At(at),
            None => UrgentWork::None,
        }
    }

    /// When [`Self::update`] may have another result without a new report, or a report is to be read again.
    pub(super) fn wake_at(
        &self,
        policy: &DeadlinePolicy,
        now: u64,
        work: UrgentWork,
        any_postponed: bool,
    ) -> Option<u64> {
        match work {
            UrgentWork::Now => {
                let poll_ns = if any_postponed { policy.postponed_poll_ns } else { policy.poll_ns };
                Some(self.counts_until.min(now.saturating_add(poll_ns)))
            }
            // A process can report a time that is nearly over again and again.
            UrgentWork::At(at) => Some(at.saturating_add(policy.late_ns)),
            UrgentWork::None => None,
        }
        .map(|at| at.max(now.saturating_add(policy.postponed_poll_ns)))
    }

    fn follow_request(&mut self, policy: &DeadlinePolicy, busy: bool, since_ns: u64) {
        self.request = match (busy, self.request) {
            (true, Some((began, None))) => Some((began, None)),
            (true, Some((began, Some(ended)))) if since_ns < ended.saturating_add(policy.request_gap_ns) => {
                Some((began, None))
            }
            (true, _) => Some((since_ns, None)),
            (false, Some((began, None))) => Some((began, Some(since_ns))),
            (false, request) => request,
        };
    }

    /// Takes note of the expectation on the page. One that passes without work is in vain.
    fn follow_expectation(&mut self, policy: &DeadlinePolicy, now: u64, service: &Service) {
        let on_page = service.expected_ns;
        if let Some(expected) = self.expected_ns
            && (on_page != expected || expected.saturating_add(policy.late_ns) <= now)
        {
            let has_come = self.request.is_some_and(|(began, ended)| {
                let earliest = expected.saturating_sub(policy.late_ns);
                // One that runs for too long is no arrival.
                began >= earliest || ended.map_or(now < self.counts_until, |ended| ended >= earliest)
            });
            if !has_come {
                self.count_vain(policy, now);
            }
            (self.expected_ns, self.vain_ns) = (None, expected);
        }
        let is_ahead = now < on_page.saturating_add(policy.late_ns)
            && on_page <= now.saturating_add(policy.horizon_ns)
            && on_page != self.vain_ns;
        if on_page != 0 && is_ahead {
            self.expected_ns = Some(on_page);
        }
    }

    fn count_vain(&mut self, policy: &DeadlinePolicy, now: u64) {
        let full = RateLimiter::full(Rate::one_per(policy.vain_burst_ns, VAIN_REFILL));
        let vain = self.vain.get_or_insert(full);
        if !vain.try_take(policy.vain_cost_ns, now) {
            self.ignored_until = vain.ready_at(policy.vain_cost_ns).unwrap_or(u64::MAX);
        }
    }
}
