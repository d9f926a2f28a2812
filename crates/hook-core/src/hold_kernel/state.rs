//! What to do about holds: pure, the caller brings time and does what is decided.

use super::arrival_predictor::ArrivalPredictor;
use super::benefit_test::BenefitTest;
use super::conditions::{HoldPlan, HoldRefusal, Settings, Trigger};
use super::preparation_estimate::{ExpectedTime, PreparationEstimate};
use super::switch_cost::{HoldTimes, SwitchCost};

/// Requests of more launches than this are held until the program waits: in the gaps between their launches the GPU would
/// go to somebody else, and a switch there and back costs more than most gaps are long.
const FEW_LAUNCHES: f64 = 1.5;

/// How much one request moves the number of launches expected.
const LAUNCHES_PART: f64 = 1.0 / 8.0;

/// A hold is launched at once rather than this much later: that another thread wakes up in time is less sure than this much of
/// the GPU's time is worth.
const AT_ONCE_NS: f64 = 500_000.0;

/// A hold lasts at least this much longer than its request is expected to take: requests are late far more often than they are
/// early, one that comes too late for its hold is switched in a second time, and one that comes ends it at once.
const LATE_NS: u64 = 400_000;

/// A request further away than this is not known to come.
const FURTHEST_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Work is out, or was never seen to finish.
    Running,
    /// Nothing runs; the next trigger begins a request.
    Armed,
    /// A request has begun, its first launch is to come.
    Begun,
}

/// The request that has begun, until the GPU is idle again.
#[derive(Debug, Clone, Copy)]
struct Request {
    trigger: Trigger,
    /// The first call that belongs to it, unless that is still to come.
    began_ns: Option<u64>,
    /// When its first launch would come if nothing were known.
    announced_ns: u64,
    /// If nothing of it is there by then, it never was.
    expires_ns: u64,
    held: bool,
    /// When it was due, if it was foreseen.
    predicted: Option<PredictedRequest>,
}

/// A request that is expected at a certain time.
#[derive(Debug, Clone, Copy)]
struct PredictedRequest {
    due_ns: u64,
    /// The hold to be launched before it; `None` for a request to compare with.
    hold: Option<HoldPlan>,
    released_by_launch: bool,
}

#[derive(Debug, Clone, Copy)]
struct ActiveHold {
    ticket: u32,
    /// Released by the first launch; else by a wait.
    released_by_launch: bool,
}

/// The state of one device's hints.
#[derive(Debug)]
pub struct HoldKernelState {
    settings: Settings,
    /// Other processes that may use the GPU; 0 also while this one may not hold.
    contenders: u64,
    phase: Phase,
    request: Option<Request>,
    active: Option<ActiveHold>,
    ticket: u32,
    preparation: [PreparationEstimate; 4],
    switch_cost: SwitchCost,
    benefit_tests: [BenefitTest; 3],
    arrivals: ArrivalPredictor,
    predicted: Option<PredictedRequest>,
    /// Launches of one request, smoothed.
    launches_per_request: f64,
    last_launches: Option<u64>,
}

impl HoldKernelState {
    /// A machine that holds nothing until it is allowed to.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            contenders: 0,
            phase: Phase::Running,
            request: None,
            active: None,
            ticket: 0,
            preparation: [PreparationEstimate::default(); 4],
            switch_cost: SwitchCost::default(),
            benefit_tests: [BenefitTest::new(true), BenefitTest::new(false), BenefitTest::new(true)],
            arrivals: ArrivalPredictor::default(),
            predicted: None,
            launches_per_request: 1.0,
            last_launches: None,
        }
    }

    /// How many other processes may use the GPU; 0 also if this process may not hold.
    pub fn set_contenders(&mut self, company: u64) {
        self.contenders = company;
    }

    /// Whether holds are allowed.
    pub fn is_allowed(&self) -> bool {
        self.contenders != 0 && (self.settings.automatic || self.settings.by_hint)
    }

    /// Whether the next copy or launch would begin a request.
    pub fn is_armed(&self) -> bool {
        self.phase == Phase::Armed && self.is_allowed()
    }

    /// Whether the next launch is the first of a request.
    pub fn has_begun(&self) -> bool {
        self.phase == Phase::Begun
    }

    /// Whether a request was announced or foreseen, and its first call is to come.
    pub fn is_awaited(&self) -> bool {
        self.phase == Phase::Begun && self.request.is_some_and(|request| request.began_ns.is_none())
    }

    /// Whether a hold is out.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Whether the hold of this ticket is out, and not released.
    pub fn is_active_ticket(&self, ticket: u32) -> bool {
        self.active.is_some_and(|out| out.ticket == ticket)
    }

    /// A request begins, or will in `lead_ns`.
    ///
    /// # Errors
    /// Why no hold is to be launched.
    pub fn begin_request(
        &mut self,
        trigger: Trigger,
        now_ns: u64,
        lead_ns: u64,
    ) -> Result<HoldPlan, HoldRefusal> {
        let called = trigger == Trigger::Hint;
        if !(if called { self.settings.by_hint } else { self.settings.automatic }) {
            return Err(HoldRefusal::Disabled);
        }
        if self.contenders == 0 {
            return Err(HoldRefusal::NoContenders);
        }
        if lead_ns > FURTHEST_NS {
            return Err(HoldRefusal::TooFarAhead);
        }
        self.expire_request(now_ns);
        match self.phase {
            Phase::Running => return Err(HoldRefusal::Running),
            Phase::Begun => {
                if !called {
                    let _expected = self.request_arrived(now_ns);
                }
                return Err(HoldRefusal::AlreadyBegun);
            }
            Phase::Armed => {}
        }
        let held = match trigger {
            Trigger::Hint => true,
            _ => self.benefit_tests[trigger as usize].choose(),
        };
        self.phase = Phase::Begun;
        self.request = Some(Request {
            trigger,
            began_ns: (!called).then_some(now_ns),
            announced_ns: now_ns.saturating_add(lead_ns),
            expires_ns: u64::MAX,
            held,
            // It is there before its hold was launched, unless it is another, which teaches nothing about those that are foreseen.
            predicted: self
                .predicted
                .take()
                .filter(|foreseen| foreseen.due_ns.abs_diff(now_ns) <= LATE_NS)
                .map(|foreseen| PredictedRequest { hold: None, ..foreseen }),
        });
        if held { Ok(self.plan(trigger, now_ns, lead_ns)) } else { Err(HoldRefusal::NotWorthIt) }
    }

    /// The first call of a request that was announced or foreseen is made. `false` if that one never came, and this is another,
    /// which has yet to begin.
    pub fn request_arrived(&mut self, now_ns: u64) -> bool {
        self.expire_request(now_ns);
        if let Some(request) = &mut self.request {
            request.began_ns.get_or_insert(now_ns);
        }
        self.phase != Phase::Armed
    }

    /// Forgets a request that was announced or foreseen and did not come: what comes now is not late for it, and teaches nothing about it.
    pub fn expire_request(&mut self, now_ns: u64) {
        if self.is_awaited() && self.request.is_some_and(|request| now_ns > request.expires_ns) {
            self.phase = Phase::Armed;
            (self.request, self.active) = (None, None);
        }
    }

    /// The hold for a request whose trigger is there.
    fn plan(&mut self, trigger: Trigger, now_ns: u64, lead_ns: u64) -> HoldPlan {
        let promised = now_ns as f64 + lead_ns as f64;
        let expected = match self.preparation[trigger as usize].expected() {
            Some(after) => ExpectedTime { mean_ns: promised + after.mean_ns, ..after },
            None => ExpectedTime { mean_ns: promised, margin_ns: self.settings.budget_ns as f64 },
        };
        let mut hold = self.plan_around(expected, now_ns);
        if hold.starts_ns as f64 <= now_ns as f64 + AT_ONCE_NS {
            // As long as it is early.
            let early = hold.starts_ns.saturating_sub(now_ns);
            hold.timeout_ns = (hold.timeout_ns + early).min(self.settings.budget_ns);
            hold.starts_ns = now_ns;
        }
        self.active =
            Some(ActiveHold { ticket: hold.ticket, released_by_launch: self.is_released_by_launch() });
        if let Some(request) = &mut self.request {
            // A program that is always late by less teaches by how much.
            request.expires_ns = hold
                .ends_ns(self.switch_cost.whole_ns())
                .max(request.announced_ns.saturating_add(self.settings.max_learned_ns()));
        }
        hold
    }

    /// When to launch a hold and for how long, if the first launch is expected then: so early that the GPU is ours by that
    /// time, and so long that an error as large as usual is covered, within the budget.
    fn plan_around(&mut self, expected: ExpectedTime, now_ns: u64) -> HoldPlan {
        let budget = self.settings.budget_ns as f64;
        let ExpectedTime { mean_ns, margin_ns } = expected;
        // A budget that does not cover the whole margin covers its middle.
        let starts =
            (mean_ns - margin_ns - self.switch_cost.ns()).max(mean_ns - budget / 2.0).max(now_ns as f64);
        let lasts = if self.is_released_by_launch() {
            (mean_ns + margin_ns.max(LATE_NS as f64) - starts).clamp(self.switch_cost.ns(), budget)
        } else {
            budget
        };
        self.ticket = self.ticket.wrapping_add(1).max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between now and a second later, and between 0 and the budget"
        )]
        HoldPlan {
            ticket: self.ticket,
            starts_ns: starts as u64,
            timeout_ns: (lasts as u64).min(self.settings.budget_ns),
        }
    }

    fn is_released_by_launch(&self) -> bool {
        self.launches_per_request <= FEW_LAUNCHES
    }

    /// The hold for the next request, if that is known to come: to be launched in its time if [`Self::comes_due`] says so.
    pub fn predict_next(&mut self, now_ns: u64) -> Option<HoldPlan> {
        self.predicted = None;
        if !self.settings.automatic || self.contenders == 0 {
            return None;
        }
        let due = self.arrivals.next()?;
        let expected = match self.preparation[Trigger::Predicted as usize].expected() {
            Some(after) => ExpectedTime { mean_ns: due.mean_ns + after.mean_ns, ..after },
            None => due,
        };
        let hold = self.plan_around(expected, now_ns);
        // Requests so close that one hold would follow the other leave nothing to others.
        if hold.starts_ns <= now_ns {
            return None;
        }
        let hold = Some(hold).filter(|_| self.benefit_tests[Trigger::Predicted as usize].choose());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a clock's value some intervals of at most a second ahead"
        )]
        let due_ns = due.mean_ns as u64;
        self.predicted =
            Some(PredictedRequest { due_ns, hold, released_by_launch: self.is_released_by_launch() });
        hold
    }

    /// The time of a planned hold has come: whether to launch it.
    pub fn take_due(&mut self, ticket: u32) -> bool {
        if self.is_active_ticket(ticket) {
            return true;
        }
        let armed = self.is_armed();
        let Some(foreseen) =
            self.predicted.take_if(|foreseen| foreseen.hold.is_some_and(|hold| hold.ticket == ticket))
        else {
            return false;
        };
        if armed {
            self.phase = Phase::Begun;
            self.active = Some(ActiveHold { ticket, released_by_launch: foreseen.released_by_launch });
            self.request = Some(Request {
                trigger: Trigger::Predicted,
                began_ns: None,
                announced_ns: foreseen.due_ns,
                expires_ns: foreseen.hold.map_or(u64::MAX, |hold| hold.ends_ns(self.switch_cost.whole_ns())),
                held: true,
                predicted: Some(foreseen),
            });
        }
        armed
    }

    /// The hold could not be launched.
    pub fn launch_failed(&mut self, ticket: u32) {
        if self.active.take_if(|out| out.ticket == ticket).is_some()
            && let Some(request) = &mut self.request
        {
            request.held = false;
        }
    }

    /// A launch was submitted: what it releases.
    pub fn launch_submitted(&mut self, now_ns: u64) -> Option<u32> {
        self.expire_request(now_ns);
        if self.phase == Phase::Begun
            && let Some(request) = &mut self.request
        {
            let began_ns = *request.began_ns.get_or_insert(now_ns);
            self.arrivals.learn(began_ns);
            let limit = self.settings.max_learned_ns() as f64;
            let late = |promised_ns: u64| now_ns as f64 - promised_ns as f64;
            self.preparation[request.trigger as usize].learn(late(request.announced_ns), limit);
            if let Some(foreseen) = request.predicted.filter(|_| request.trigger != Trigger::Predicted) {
                self.preparation[Trigger::Predicted as usize].learn(late(foreseen.due_ns), limit);
            }
        }
        self.phase = Phase::Running;
        self.active.take_if(|out| out.released_by_launch).map(|out| out.ticket)
    }

    /// The host is about to wait: for everything of a context, which a hold is part of; or for a part.
    pub fn host_wait_begins(&mut self, whole_context: bool) -> Option<u32> {
        // A wait before the first launch is for the input, and the hold is to outlast that.
        if !whole_context && self.phase == Phase::Begun {
            return None;
        }
        self.active.take().map(|out| out.ticket)
    }

    /// All work had finished at `now_ns`; `exact` if that is when it did. `launches` have been made since the start.
    pub fn work_finished(&mut self, now_ns: u64, exact: bool, launches: u64) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Armed;
        if let Some(before) = self.last_launches.replace(launches) {
            let error = launches.saturating_sub(before) as f64 - self.launches_per_request;
            self.launches_per_request += LAUNCHES_PART * error;
        }
        let Some(request) = self.request.take() else { return };
        let lasted = request.began_ns.filter(|_| exact).map(|began| now_ns.saturating_sub(began));
        let contesting = self.switch_cost.shows_contention();
        // A request that was foreseen and not held for is what those that were held for are compared with.
        let (of, held) = match request.predicted {
            Some(_) => (Trigger::Predicted, request.held && request.trigger == Trigger::Predicted),
            None => (request.trigger, request.held),
        };
        if let Some(trial) = self.benefit_tests.get_mut(of as usize) {
            trial.learn(held, lasted, contesting);
        }
    }

    /// What the GPU wrote down about a hold that is over.
    pub fn learn_times(&mut self, seen: HoldTimes) {
        self.switch_cost.learn(seen);
    }
}
