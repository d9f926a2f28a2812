//! What to do about holds: pure, the caller brings time and does what is decided.

use super::cost::{Cost, Seen};
use super::estimate::{Estimate, Expected};
use super::rhythm::Rhythm;
use super::terms::{Hold, NoHold, Settings, Trigger};
use super::trial::Trial;

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
    promised_ns: u64,
    /// If nothing of it is there by then, it never was.
    gone_ns: u64,
    held: bool,
    /// When it was due, if it was foreseen.
    foreseen: Option<Foreseen>,
}

/// A request that is expected at a certain time.
#[derive(Debug, Clone, Copy)]
struct Foreseen {
    due_ns: u64,
    /// The hold to be launched before it; `None` for a request to compare with.
    hold: Option<Hold>,
    by_launch: bool,
}

#[derive(Debug, Clone, Copy)]
struct Out {
    ticket: u32,
    /// Released by the first launch; else by a wait.
    by_launch: bool,
}

/// The state of one device's hints.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    /// Other processes that may use the GPU; 0 also while this one may not hold.
    company: u64,
    phase: Phase,
    request: Option<Request>,
    out: Option<Out>,
    ticket: u32,
    prepared: [Estimate; 4],
    cost: Cost,
    trials: [Trial; 3],
    rhythm: Rhythm,
    foreseen: Option<Foreseen>,
    /// Launches of one request, smoothed.
    launches: f64,
    launches_seen: Option<u64>,
}

impl Machine {
    /// A machine that holds nothing until it is allowed to.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            company: 0,
            phase: Phase::Running,
            request: None,
            out: None,
            ticket: 0,
            prepared: [Estimate::default(); 4],
            cost: Cost::default(),
            trials: [Trial::new(true), Trial::new(false), Trial::new(true)],
            rhythm: Rhythm::default(),
            foreseen: None,
            launches: 1.0,
            launches_seen: None,
        }
    }

    /// How many other processes may use the GPU; 0 also if this process may not hold.
    pub fn allow(&mut self, company: u64) {
        self.company = company;
    }

    /// Whether holds are allowed.
    pub fn is_allowed(&self) -> bool {
        self.company != 0 && (self.settings.automatic || self.settings.by_call)
    }

    /// Whether the next copy or launch would begin a request.
    pub fn is_armed(&self) -> bool {
        self.phase == Phase::Armed && self.is_allowed()
    }

    /// Whether the next launch is the first of a request.
    pub fn is_begun(&self) -> bool {
        self.phase == Phase::Begun
    }

    /// Whether a request was announced or foreseen, and its first call is to come.
    pub fn is_awaited(&self) -> bool {
        self.phase == Phase::Begun && self.request.is_some_and(|request| request.began_ns.is_none())
    }

    /// Whether a hold is out.
    pub fn is_held(&self) -> bool {
        self.out.is_some()
    }

    /// Whether the hold of this ticket is out, and not released.
    pub fn is_out(&self, ticket: u32) -> bool {
        self.out.is_some_and(|out| out.ticket == ticket)
    }

    /// A request begins, or will in `lead_ns`.
    ///
    /// # Errors
    /// Why no hold is to be launched.
    pub fn begins(&mut self, trigger: Trigger, now_ns: u64, lead_ns: u64) -> Result<Hold, NoHold> {
        let called = trigger == Trigger::Call;
        if !(if called { self.settings.by_call } else { self.settings.automatic }) {
            return Err(NoHold::Off);
        }
        if self.company == 0 {
            return Err(NoHold::Alone);
        }
        if lead_ns > FURTHEST_NS {
            return Err(NoHold::TooFar);
        }
        self.give_up(now_ns);
        match self.phase {
            Phase::Running => return Err(NoHold::Running),
            Phase::Begun => {
                if !called {
                    let _expected = self.arrives(now_ns);
                }
                return Err(NoHold::Begun);
            }
            Phase::Armed => {}
        }
        let held = match trigger {
            Trigger::Call => true,
            _ => self.trials[trigger as usize].choose(),
        };
        self.phase = Phase::Begun;
        self.request = Some(Request {
            trigger,
            began_ns: (!called).then_some(now_ns),
            promised_ns: now_ns.saturating_add(lead_ns),
            gone_ns: u64::MAX,
            held,
            // It is there before its hold was launched, unless it is another, which teaches nothing about those that are foreseen.
            foreseen: self
                .foreseen
                .take()
                .filter(|foreseen| foreseen.due_ns.abs_diff(now_ns) <= LATE_NS)
                .map(|foreseen| Foreseen { hold: None, ..foreseen }),
        });
        if held { Ok(self.plan(trigger, now_ns, lead_ns)) } else { Err(NoHold::NotWorthIt) }
    }

    /// The first call of a request that was announced or foreseen is made. `false` if that one never came, and this is another,
    /// which has yet to begin.
    pub fn arrives(&mut self, now_ns: u64) -> bool {
        self.give_up(now_ns);
        if let Some(request) = &mut self.request {
            request.began_ns.get_or_insert(now_ns);
        }
        self.phase != Phase::Armed
    }

    /// Forgets a request that was announced or foreseen and did not come: what comes now is not late for it, and teaches nothing about it.
    pub fn give_up(&mut self, now_ns: u64) {
        if self.is_awaited() && self.request.is_some_and(|request| now_ns > request.gone_ns) {
            self.phase = Phase::Armed;
            (self.request, self.out) = (None, None);
        }
    }

    /// The hold for a request whose trigger is there.
    fn plan(&mut self, trigger: Trigger, now_ns: u64, lead_ns: u64) -> Hold {
        let promised = now_ns as f64 + lead_ns as f64;
        let expected = match self.prepared[trigger as usize].expected() {
            Some(after) => Expected { mean_ns: promised + after.mean_ns, ..after },
            None => Expected { mean_ns: promised, margin_ns: self.settings.budget_ns as f64 },
        };
        let mut hold = self.around(expected, now_ns);
        if hold.starts_ns as f64 <= now_ns as f64 + AT_ONCE_NS {
            // As long as it is early.
            let early = hold.starts_ns.saturating_sub(now_ns);
            hold.timeout_ns = (hold.timeout_ns + early).min(self.settings.budget_ns);
            hold.starts_ns = now_ns;
        }
        self.out = Some(Out { ticket: hold.ticket, by_launch: self.ends_by_launch() });
        if let Some(request) = &mut self.request {
            // A program that is always late by less teaches by how much.
            request.gone_ns = hold
                .over_ns(self.cost.whole_ns())
                .max(request.promised_ns.saturating_add(self.settings.learnt_ns()));
        }
        hold
    }

    /// When to launch a hold and for how long, if the first launch is expected then: so early that the GPU is ours by that
    /// time, and so long that an error as large as usual is covered, within the budget.
    fn around(&mut self, expected: Expected, now_ns: u64) -> Hold {
        let budget = self.settings.budget_ns as f64;
        let Expected { mean_ns, margin_ns } = expected;
        // A budget that does not cover the whole margin covers its middle.
        let starts = (mean_ns - margin_ns - self.cost.ns()).max(mean_ns - budget / 2.0).max(now_ns as f64);
        let lasts = if self.ends_by_launch() {
            (mean_ns + margin_ns.max(LATE_NS as f64) - starts).clamp(self.cost.ns(), budget)
        } else {
            budget
        };
        self.ticket = self.ticket.wrapping_add(1).max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between now and a second later, and between 0 and the budget"
        )]
        Hold {
            ticket: self.ticket,
            starts_ns: starts as u64,
            timeout_ns: (lasts as u64).min(self.settings.budget_ns),
        }
    }

    fn ends_by_launch(&self) -> bool {
        self.launches <= FEW_LAUNCHES
    }

    /// The hold for the next request, if that is known to come: to be launched in its time if [`Self::comes_due`] says so.
    pub fn foresee(&mut self, now_ns: u64) -> Option<Hold> {
        self.foreseen = None;
        if !self.settings.automatic || self.company == 0 {
            return None;
        }
        let due = self.rhythm.next()?;
        let expected = match self.prepared[Trigger::Foreseen as usize].expected() {
            Some(after) => Expected { mean_ns: due.mean_ns + after.mean_ns, ..after },
            None => due,
        };
        let hold = self.around(expected, now_ns);
        // Requests so close that one hold would follow the other leave nothing to others.
        if hold.starts_ns <= now_ns {
            return None;
        }
        let hold = Some(hold).filter(|_| self.trials[Trigger::Foreseen as usize].choose());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a clock's value some intervals of at most a second ahead"
        )]
        let due_ns = due.mean_ns as u64;
        self.foreseen = Some(Foreseen { due_ns, hold, by_launch: self.ends_by_launch() });
        hold
    }

    /// The time of a planned hold has come: whether to launch it.
    pub fn comes_due(&mut self, ticket: u32) -> bool {
        if self.is_out(ticket) {
            return true;
        }
        let armed = self.is_armed();
        let Some(foreseen) =
            self.foreseen.take_if(|foreseen| foreseen.hold.is_some_and(|hold| hold.ticket == ticket))
        else {
            return false;
        };
        if armed {
            self.phase = Phase::Begun;
            self.out = Some(Out { ticket, by_launch: foreseen.by_launch });
            self.request = Some(Request {
                trigger: Trigger::Foreseen,
                began_ns: None,
                promised_ns: foreseen.due_ns,
                gone_ns: foreseen.hold.map_or(u64::MAX, |hold| hold.over_ns(self.cost.whole_ns())),
                held: true,
                foreseen: Some(foreseen),
            });
        }
        armed
    }

    /// The hold could not be launched.
    pub fn failed(&mut self, ticket: u32) {
        if self.out.take_if(|out| out.ticket == ticket).is_some()
            && let Some(request) = &mut self.request
        {
            request.held = false;
        }
    }

    /// A launch was submitted: what it releases.
    pub fn launched(&mut self, now_ns: u64) -> Option<u32> {
        self.give_up(now_ns);
        if self.phase == Phase::Begun
            && let Some(request) = &mut self.request
        {
            let began_ns = *request.began_ns.get_or_insert(now_ns);
            self.rhythm.learn(began_ns);
            let limit = self.settings.learnt_ns() as f64;
            let late = |promised_ns: u64| now_ns as f64 - promised_ns as f64;
            self.prepared[request.trigger as usize].learn(late(request.promised_ns), limit);
            if let Some(foreseen) = request.foreseen.filter(|_| request.trigger != Trigger::Foreseen) {
                self.prepared[Trigger::Foreseen as usize].learn(late(foreseen.due_ns), limit);
            }
        }
        self.phase = Phase::Running;
        self.out.take_if(|out| out.by_launch).map(|out| out.ticket)
    }

    /// The host is about to wait: for everything of a context, which a hold is part of; or for a part.
    pub fn waits(&mut self, whole_context: bool) -> Option<u32> {
        // A wait before the first launch is for the input, and the hold is to outlast that.
        if !whole_context && self.phase == Phase::Begun {
            return None;
        }
        self.out.take().map(|out| out.ticket)
    }

    /// All work had finished at `now_ns`; `exact` if that is when it did. `launches` have been made since the start.
    pub fn idle(&mut self, now_ns: u64, exact: bool, launches: u64) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Armed;
        if let Some(before) = self.launches_seen.replace(launches) {
            let error = launches.saturating_sub(before) as f64 - self.launches;
            self.launches += LAUNCHES_PART * error;
        }
        let Some(request) = self.request.take() else { return };
        let lasted = request.began_ns.filter(|_| exact).map(|began| now_ns.saturating_sub(began));
        let contesting = self.cost.is_of_a_switch();
        // A request that was foreseen and not held for is what those that were held for are compared with.
        let (of, held) = match request.foreseen {
            Some(_) => (Trigger::Foreseen, request.held && request.trigger == Trigger::Foreseen),
            None => (request.trigger, request.held),
        };
        if let Some(trial) = self.trials.get_mut(of as usize) {
            trial.learn(held, lasted, contesting);
        }
    }

    /// What the GPU wrote down about a hold that is over.
    pub fn seen(&mut self, seen: Seen) {
        self.cost.learn(seen);
    }
}
