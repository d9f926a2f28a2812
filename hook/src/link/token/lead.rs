//! The lead of hold kernels, what the manager asks for and what this process reports, their linger time, and the errors of predictions.

use super::TokenConnection;

impl TokenConnection {
    /// By how much the hold kernels of predicted requests should lead, besides the time of a context switch, in nanoseconds.
    pub(crate) fn wanted_lead_ns(&self) -> u64 {
        self.grant_view().lead_ns()
    }

    /// Whether a request without a lead waits for a second group's time slice.
    pub(crate) fn second_group(&self) -> bool {
        self.grant_view().second_group()
    }

    /// Whether a lead is reported.
    pub(crate) fn reports_lead(&self) -> bool {
        self.report_view().is_some_and(|report| report.lead_ns() > 0)
    }

    /// Reports how long hold kernels stay without work within a request.
    pub(crate) fn report_linger(&self, linger_ns: u64) {
        if let Some(report) = self.report_view() {
            report.report_linger(linger_ns);
        }
    }

    /// Reports the mean errors of predicted arrivals and preparations.
    pub(crate) fn report_prediction_errors(&self, errors_ns: [u64; 2]) {
        if let Some(report) = self.report_view() {
            report.report_prediction_errors(errors_ns);
        }
    }

    /// Reports by how much hold kernels lead; 0 if too few requests have one. Wakes the manager if it has to disable a second group.
    pub(crate) fn report_lead(&self, lead_ns: u64) {
        let Some(report) = self.report_view() else { return };
        let before = report.lead_ns();
        if before != lead_ns {
            report.report_lead(lead_ns);
            if lead_ns < before {
                self.wakeup.signal();
            }
        }
    }
}
