//! What a process newly reports about its steps and requests.

use super::reader::{LatencyReader, NewLatencies};
use sluice_comm::latency::LatencyKind;
use sluice_comm::page::ReportView;

/// What was read, as far as it can be true.
#[derive(Debug)]
pub(crate) struct NewReport {
    pub(crate) steps: Option<NewLatencies>,
    pub(crate) requests: Option<NewLatencies>,
    /// Requests above the client's latency goal.
    pub(crate) slo_violations: u64,
    /// Steps without a latency.
    pub(crate) unobserved_steps: u64,
}

/// The reader of one report page.
#[derive(Debug)]
pub(crate) struct LatencyReport {
    steps: LatencyReader,
    requests: LatencyReader,
    /// Requests that were counted and did not count as violations.
    within_goal: u64,
    violations_seen: u64,
    unobserved_seen: u64,
}

impl LatencyReport {
    /// A reader of a page without latencies.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            steps: LatencyReader::new(now),
            requests: LatencyReader::new(now),
            within_goal: 0,
            violations_seen: 0,
            unobserved_seen: 0,
        }
    }

    /// Reads what was reported since the last reading.
    pub(crate) fn read(&mut self, page: ReportView<'_>, now: u64) -> NewReport {
        // Before the requests: a violation is written after its request, so each that is read here has its request.
        let violations = new_events(page.slo_violations(), &mut self.violations_seen);
        let unobserved = new_events(page.unobserved_steps(), &mut self.unobserved_seen);
        let most_unobserved = self.steps.most_steps(now);
        let steps = self.steps.read(page.latencies(LatencyKind::Step), now);
        let requests = self.requests.read(page.latencies(LatencyKind::Request), now);
        let counted = requests.as_ref().map_or(0, |requests| requests.counts.iter().sum());
        self.within_goal = self.within_goal.saturating_add(counted);
        let slo_violations = violations.min(self.within_goal);
        self.within_goal -= slo_violations;
        NewReport { steps, requests, slo_violations, unobserved_steps: unobserved.min(most_unobserved) }
    }
}

/// What was added to a counter since it was seen last; nothing if it went backwards.
fn new_events(count: u64, seen: &mut u64) -> u64 {
    count.saturating_sub(std::mem::replace(seen, count))
}
