//! Predicted requests: their hold kernels are launched before the program's first call, and may lead by a second group's time slice.

use super::lead::SLACK_NS;
use super::preparation_estimate::ExpectedTime;
use super::request::{ActiveHold, BurstTimes, HoldPlan, Phase, PredictedRequest, Request, Trigger};
use super::state::HoldKernelState;
use super::tested::Tested;

impl HoldKernelState {
    /// Predicts the next request and returns its hold kernel, to be launched at its time if [`Self::take_due`] agrees.
    pub fn predict_next(&mut self, now_ns: u64) -> Option<HoldPlan> {
        if self.request.is_some_and(|request| request.bursts.ended > 0) {
            // Not the first launch of its request, after which the next one was predicted.
            return None;
        }
        self.predicted = None;
        if !self.settings.automatic || self.contenders == 0 {
            return None;
        }
        let due = self.arrivals.next()?;
        let expected = match self.preparation[Trigger::Predicted as usize].expected() {
            Some(after) => ExpectedTime { mean_ns: due.mean_ns + after.mean_ns, ..after },
            None => due,
        };
        let lead_ns = self.lead.at_interval(self.arrivals.interval_ns());
        let earlier_ns = if lead_ns > 0 { lead_ns + SLACK_NS } else { 0 };
        let hold = self.plan_around(expected, now_ns, earlier_ns);
        // If requests are so close that one hold kernel would follow the other, no GPU time would be left for other clients.
        if hold.starts_ns <= now_ns {
            return None;
        }
        let test = self.benefit_tests.of_mut(Tested::Predicted);
        // A request without a hold kernel has no lead, and waits for longer than it would without the second group.
        let holds = if lead_ns > 0 { test.settled() } else { test.choose() };
        let hold = Some(hold).filter(|_| holds);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a clock's value some intervals of at most a second ahead"
        )]
        let due_ns = due.mean_ns as u64;
        let ends = self.hold_end();
        self.predicted = Some(PredictedRequest { due_ns, hold, ends, lead_ns, launched_ns: None });
        hold
    }

    /// Whether a planned hold kernel is to be launched, at its start time.
    pub fn take_due(&mut self, ticket: u32) -> bool {
        if self.active.is_some_and(|out| out.ticket == ticket) {
            return true;
        }
        let Some(predicted) =
            self.predicted.take_if(|predicted| predicted.hold.is_some_and(|hold| hold.ticket == ticket))
        else {
            return false;
        };
        self.end_if_over(predicted.hold.map_or(0, |hold| hold.starts_ns));
        let armed = self.is_armed() && self.request.is_none();
        if armed {
            let starts_ns = predicted.hold.map_or(predicted.due_ns, |hold| hold.starts_ns);
            let copies = self.choose_copies(predicted.tested(), Trigger::Predicted, starts_ns);
            self.phase = Phase::Begun;
            self.active = Some(ActiveHold { ticket, ends: predicted.ends });
            self.request = Some(Request {
                trigger: Trigger::Predicted,
                began_ns: None,
                announced_ns: predicted.due_ns,
                expires_ns: predicted.hold.map_or(u64::MAX, |hold| hold.ends_ns(self.switch_cost.whole_ns())),
                with_hold: true,
                copies,
                predicted: Some(predicted),
                linger_ns: predicted.hold.and_then(|hold| hold.linger_ns).unwrap_or(0),
                idle_since_ns: None,
                is_interrupted: false,
                outlasted: 0,
                bursts: BurstTimes::default(),
            });
        }
        armed
    }

    /// Records that the hold kernel of a predicted request is launched at `now_ns`.
    pub fn predicted_hold_launched(&mut self, now_ns: u64) {
        if let Some(predicted) = self.request.as_mut().and_then(|request| request.predicted.as_mut()) {
            predicted.launched_ns = Some(now_ns);
        }
    }

    /// Sets by how much hold kernels of predicted requests should lead, besides the time of a context switch, and whether a request without
    /// a lead waits for a second group.
    pub fn set_wanted_lead(&mut self, wanted_ns: u64, second_group: bool) {
        self.lead.set_wanted(wanted_ns, second_group);
    }

    /// Mean errors of the predictions, in nanoseconds: when the next request begins, and how long after its first copy its first launch comes.
    /// 0: nothing is predicted.
    pub fn prediction_errors_ns(&self) -> [u64; 2] {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "means of positive times below a second"
        )]
        let whole = |ns: f64| ns as u64;
        [self.arrivals.error_ns(), self.preparation[Trigger::Copy as usize].error_ns()].map(whole)
    }

    /// By how much hold kernels of predicted requests lead; 0 if too few requests have one.
    pub fn kept_lead_ns(&self) -> u64 {
        self.lead.kept_ns()
    }
}
