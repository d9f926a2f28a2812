//! The decisions about hold kernels. Pure: the caller passes the time and carries the decisions out.

use super::arrival_predictor::ArrivalPredictor;
use super::copies::Copies;
use super::lead::Lead;
use super::linger::Linger;
use super::preparation_estimate::{ExpectedTime, PreparationEstimate};
use super::request::{
    ActiveHold, BurstTimes, HoldEnd, HoldPlan, HoldRefusal, Phase, PredictedRequest, Request, Settings,
    Trigger,
};
use super::switch_cost::{HoldTimes, SwitchCost};
use super::tested::{BenefitTests, Tested};
use super::whole_request::{BurstEnd, Idleness};
use super::words::{Activity, HoldWords};

/// If requests have more launches than this, hold kernels last until the program waits. In the gaps between its launches the GPU would
/// switch to another process, and a switch there and back costs more than most gaps are long.
const MAX_SINGLE_LAUNCHES: f64 = 1.5;

/// Weight of one request in the mean number of launches.
const LAUNCHES_WEIGHT: f64 = 1.0 / 8.0;

/// A hold kernel that would start within this time is launched at once. That costs this much GPU time, and avoids the risk that the worker
/// thread wakes up late.
const IMMEDIATE_NS: f64 = 500_000.0;

/// A hold kernel lasts at least this much longer than the expected arrival. Requests are late far more often than early. A late request
/// without its hold kernel is switched in a second time, and an early one ends it at once.
const LATENESS_NS: u64 = 400_000;

/// Longest lead of an announced request.
const MAX_LEAD_NS: u64 = 1_000_000_000;

/// The state of one device's hold kernels.
#[derive(Debug)]
pub struct HoldKernelState {
    pub(super) settings: Settings,
    /// Number of contenders; also 0 while hold kernels are not allowed.
    pub(super) contenders: u64,
    pub(super) phase: Phase,
    pub(super) request: Option<Request>,
    pub(super) active: Option<ActiveHold>,
    /// The page of the active hold kernel.
    pub(super) words: Option<HoldWords>,
    pub(super) activity: Activity,
    pub(super) linger: Linger,
    /// Between the end of a burst and the next call.
    pub(super) idleness: Option<Idleness>,
    /// The program has marked the begin of a request and not its end.
    pub(super) is_explicit: bool,
    ticket: u32,
    pub(super) preparation: [PreparationEstimate; 4],
    pub(super) switch_cost: SwitchCost,
    pub(super) benefit_tests: BenefitTests,
    pub(super) copies: Copies,
    pub(super) arrivals: ArrivalPredictor,
    pub(super) lead: Lead,
    pub(super) predicted: Option<PredictedRequest>,
    /// Moving mean of the launches of one request.
    launches_per_request: f64,
    last_launches: Option<u64>,
    /// Successive requests whose bursts outlasted their hold kernels.
    pub(super) outlasted_requests: u8,
}

impl HoldKernelState {
    /// A state in which hold kernels are not allowed yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            contenders: 0,
            phase: Phase::Running,
            request: None,
            active: None,
            words: None,
            activity: Activity::default(),
            linger: Linger::default(),
            idleness: None,
            is_explicit: false,
            ticket: 0,
            preparation: [PreparationEstimate::default(); 4],
            switch_cost: SwitchCost::default(),
            benefit_tests: BenefitTests::new(),
            copies: Copies::new(),
            arrivals: ArrivalPredictor::default(),
            lead: Lead::default(),
            predicted: None,
            launches_per_request: 1.0,
            last_launches: None,
            outlasted_requests: 0,
        }
    }

    /// Sets the number of contenders; 0 also if hold kernels are not allowed.
    pub fn set_contenders(&mut self, contenders: u64) {
        self.contenders = contenders;
    }

    /// Whether hold kernels are allowed.
    pub fn is_allowed(&self) -> bool {
        self.contenders != 0 && (self.settings.automatic || self.settings.by_hint)
    }

    /// Whether the next copy or launch would begin a request.
    pub fn is_armed(&self) -> bool {
        self.phase == Phase::Armed && self.is_allowed()
    }

    /// Whether the next launch is the first one of a request.
    pub fn has_begun(&self) -> bool {
        self.phase == Phase::Begun
    }

    /// Whether a request was announced or predicted, and its first call is still to come.
    pub fn is_awaited(&self) -> bool {
        self.phase == Phase::Begun && self.request.is_some_and(|request| request.began_ns.is_none())
    }

    /// Whether a hold kernel is active or planned.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Begins a request that arrives now, or in `lead_ns`.
    ///
    /// # Errors
    /// Why no hold kernel is to be launched.
    pub fn begin_request(
        &mut self,
        trigger: Trigger,
        now_ns: u64,
        lead_ns: u64,
    ) -> Result<HoldPlan, HoldRefusal> {
        let is_hint = trigger == Trigger::Hint;
        if !(if is_hint || self.is_explicit { self.settings.by_hint } else { self.settings.automatic }) {
            return Err(HoldRefusal::Disabled);
        }
        if self.contenders == 0 {
            return Err(HoldRefusal::NoContenders);
        }
        if lead_ns > MAX_LEAD_NS {
            return Err(HoldRefusal::TooFarAhead);
        }
        self.expire_request(now_ns);
        self.end_if_over(now_ns);
        match self.phase {
            Phase::Running => return Err(HoldRefusal::Running),
            Phase::Begun => {
                if !is_hint {
                    let _expected = self.request_arrived(now_ns);
                }
                return Err(HoldRefusal::AlreadyBegun);
            }
            Phase::Armed => {}
        }
        if !is_hint {
            if self.continue_request(trigger, now_ns) {
                return Err(HoldRefusal::AlreadyBegun);
            }
            self.idleness_ends(now_ns);
            if let Some(request) = &mut self.request {
                // The request continues, and its hold kernel has reached a limit.
                (request.began_ns, request.idle_since_ns) = (Some(now_ns), None);
                self.phase = Phase::Begun;
                return Ok(self.plan(trigger, now_ns, lead_ns));
            }
        }
        let linger_ns = self.linger_ns();
        let with_hold = self.chooses_hold(trigger);
        self.phase = Phase::Begun;
        // If it comes near the predicted time, it is the predicted request, before its hold kernel was launched. Otherwise it is another
        // request, from which nothing is learned about predictions.
        let predicted = self
            .predicted
            .take()
            .filter(|predicted| predicted.due_ns.abs_diff(now_ns) <= LATENESS_NS)
            .map(|predicted| PredictedRequest { hold: None, ..predicted });
        let tested = predicted.map_or(Tested::of(trigger, linger_ns), |predicted| predicted.tested());
        let copies = self.choose_copies(tested, trigger, now_ns);
        self.request = Some(Request {
            trigger,
            began_ns: (!is_hint).then_some(now_ns),
            announced_ns: now_ns.saturating_add(lead_ns),
            expires_ns: u64::MAX,
            with_hold,
            copies,
            predicted,
            linger_ns,
            idle_since_ns: None,
            is_interrupted: false,
            outlasted: 0,
            bursts: BurstTimes::default(),
        });
        if with_hold { Ok(self.plan(trigger, now_ns, lead_ns)) } else { Err(HoldRefusal::NotWorthIt) }
    }

    /// Records the first call of an announced or predicted request. `false` if that request never came: the call belongs to another one,
    /// which is still to begin.
    pub fn request_arrived(&mut self, now_ns: u64) -> bool {
        self.expire_request(now_ns);
        if self.phase == Phase::Begun {
            self.idleness_ends(now_ns);
            if let Some(request) = &mut self.request {
                request.began_ns.get_or_insert(now_ns);
            }
        }
        self.phase != Phase::Armed
    }

    /// Forgets an announced or predicted request that did not come, so that a later request does not count as its late arrival.
    pub fn expire_request(&mut self, now_ns: u64) {
        if self.is_awaited() && self.request.is_some_and(|request| now_ns > request.expires_ns) {
            self.phase = Phase::Armed;
            (self.request, self.active, self.is_explicit) = (None, None, false);
        }
    }

    /// Plans the hold kernel of a request that was triggered.
    pub(super) fn plan(&mut self, trigger: Trigger, now_ns: u64, lead_ns: u64) -> HoldPlan {
        let announced = now_ns as f64 + lead_ns as f64;
        let expected = match self.preparation[trigger as usize].expected() {
            Some(after) => ExpectedTime { mean_ns: announced + after.mean_ns, ..after },
            None => ExpectedTime { mean_ns: announced, margin_ns: self.settings.budget_ns as f64 },
        };
        let mut hold = self.plan_around(expected, now_ns, 0);
        if hold.starts_ns as f64 <= now_ns as f64 + IMMEDIATE_NS {
            // It lasts longer by the time that it is launched earlier.
            let early = hold.starts_ns.saturating_sub(now_ns);
            hold.timeout_ns = (hold.timeout_ns + early).min(self.settings.budget_ns);
            hold.starts_ns = now_ns;
        }
        self.active = Some(ActiveHold { ticket: hold.ticket, ends: self.hold_end() });
        if let Some(request) = &mut self.request {
            // A request that is late by less than this is still waited for, so that the lateness is learned.
            request.expires_ns = hold
                .ends_ns(self.switch_cost.whole_ns())
                .max(request.announced_ns.saturating_add(self.settings.max_learned_ns()));
        }
        hold
    }

    /// Plans a hold kernel for an expected first launch. It starts so early that the GPU is switched by then, by `earlier_ns` earlier if that
    /// is not 0, and lasts long enough to cover the usual error, within the budget.
    pub(super) fn plan_around(&mut self, expected: ExpectedTime, now_ns: u64, earlier_ns: u64) -> HoldPlan {
        let earlier = earlier_ns as f64;
        let budget = self.settings.budget_ns as f64;
        let ExpectedTime { mean_ns, margin_ns } = expected;
        // If the budget does not cover the whole margin, it covers its middle.
        let earliest = (mean_ns - margin_ns - self.switch_cost.ns()).max(mean_ns - budget / 2.0);
        let starts = (earliest - earlier).max(now_ns as f64);
        let budget = budget + earlier;
        let ends = self.hold_end();
        let lasts = match ends {
            HoldEnd::Wait => budget,
            HoldEnd::Launch | HoldEnd::Request => {
                (mean_ns + margin_ns.max(LATENESS_NS as f64) - starts).clamp(self.switch_cost.ns(), budget)
            }
        };
        let linger_ns = (ends == HoldEnd::Request).then(|| self.linger_ns());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between now and a second later, and between 0 and the budget"
        )]
        HoldPlan {
            ticket: self.next_ticket(),
            starts_ns: starts as u64,
            timeout_ns: (lasts as u64).min(self.settings.budget_ns + earlier_ns),
            linger_ns,
        }
    }

    pub(super) fn next_ticket(&mut self) -> u32 {
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.ticket
    }

    pub(super) fn hold_end(&self) -> HoldEnd {
        if self.linger_ns() > 0 || self.is_explicit {
            HoldEnd::Request
        } else if self.launches_per_request <= MAX_SINGLE_LAUNCHES {
            HoldEnd::Launch
        } else {
            HoldEnd::Wait
        }
    }

    /// Records that the hold kernel could not be launched.
    pub fn launch_failed(&mut self, ticket: u32) {
        if self.active.take_if(|out| out.ticket == ticket).is_some()
            && let Some(request) = &mut self.request
        {
            request.with_hold = false;
        }
    }

    /// Records a launch. Returns the ticket to release.
    pub fn launch_submitted(&mut self, now_ns: u64) -> Option<u32> {
        self.expire_request(now_ns);
        if self.phase != Phase::Running {
            self.end_if_over(now_ns);
            self.idleness_ends(now_ns);
            self.learn_first_launch(now_ns);
            self.phase = Phase::Running;
            self.change_activity(now_ns);
        }
        self.active.take_if(|out| out.ends == HoldEnd::Launch).map(|out| out.ticket)
    }

    /// Records the first launch of a burst.
    fn learn_first_launch(&mut self, now_ns: u64) {
        let Some(request) = &mut self.request else {
            // A capture, another context, or a deadline kept it from being one: it had no hold kernel.
            self.lead.learn(None);
            return;
        };
        let began_ns = *request.began_ns.get_or_insert(now_ns);
        request.idle_since_ns = None;
        if self.phase != Phase::Begun || request.bursts.ended > 0 {
            return;
        }
        self.arrivals.learn(began_ns);
        let predicted = request.predicted.filter(|_| request.trigger == Trigger::Predicted);
        let leads = |predicted: PredictedRequest| {
            let ready_ns = predicted.launched_ns?.saturating_add(self.switch_cost.whole_ns());
            (ready_ns.saturating_add(predicted.lead_ns) <= now_ns).then_some(predicted.lead_ns)
        };
        self.lead.learn(predicted.and_then(leads));
        let limit = self.settings.max_learned_ns() as f64;
        let late = |promised_ns: u64| now_ns as f64 - promised_ns as f64;
        if !self.is_explicit {
            self.preparation[request.trigger as usize].learn(late(request.announced_ns), limit);
        }
        if let Some(predicted) = request.predicted.filter(|_| request.trigger != Trigger::Predicted) {
            self.preparation[Trigger::Predicted as usize].learn(late(predicted.due_ns), limit);
        }
    }

    /// Records a wait of the host: for a whole context, which includes the hold kernel, or for a part. Returns the ticket to release.
    pub fn host_wait_begins(&mut self, whole_context: bool) -> Option<u32> {
        // A wait before the first launch is for the input. The hold kernel has to outlast it.
        let lasts = self.phase == Phase::Begun || self.is_released_by_request();
        if !whole_context && lasts {
            return None;
        }
        let out = self.active.take()?;
        if whole_context && let Some(request) = &mut self.request {
            request.is_interrupted = true;
        }
        Some(out.ticket)
    }

    /// Gives up the active hold kernel, because another client's work comes first. The request continues with another one. Returns the
    /// ticket to release.
    pub fn leave_gpu(&mut self) -> Option<u32> {
        self.forget_ended_hold();
        self.active.take().map(|out| out.ticket)
    }

    /// Records that all work had finished at `now_ns`, as `end` tells. `launches` have been made since the start. If the active hold kernel
    /// stays, returns until when.
    pub fn work_finished(&mut self, now_ns: u64, end: BurstEnd, launches: u64) -> Option<u64> {
        if self.phase != Phase::Running {
            return None;
        }
        self.phase = Phase::Armed;
        if let Some(before) = self.last_launches.replace(launches) {
            let error = launches.saturating_sub(before) as f64 - self.launches_per_request;
            self.launches_per_request += LAUNCHES_WEIGHT * error;
        }
        self.change_activity(now_ns);
        self.count_outlasted(now_ns);
        self.burst_ends(now_ns, end)
    }

    /// Learns from the times of a hold kernel that has ended.
    pub fn learn_times(&mut self, seen: HoldTimes) {
        // The wait for a second group is no switch.
        if !self.lead.has_second_group() {
            self.switch_cost.learn(seen);
        }
    }
}
