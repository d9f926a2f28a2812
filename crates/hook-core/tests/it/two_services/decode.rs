//! The decode service: random requests of an eager prefill and 47 tokens, each a graph of 1.2 ms and a wait. A hold kernel may
//! span the gaps of a request; it ends when a launch is postponed.

use super::gpu::{Context, Gpu};
use sluice_hook_core::burst_admission::{BurstAdmission, RequestForecast, UrgentWork};

const TOKENS: u64 = 47;
const TOKEN: u64 = 1_200_000;
const GAP: u64 = 50_000;
/// The prefill: launches of kernels, bound by the host.
const LAUNCHES: u64 = 300;
const LAUNCH_EVERY: u64 = 10_000;
const KERNEL: u64 = 7_000;
const LINGER: u64 = 380_000;
/// From the manager's store until the waiting thread runs.
const WAKE: u64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// No request.
    Idle,
    /// The next launch is due at this time.
    Launch(u64),
    /// A launch is postponed since then, until that time unless the urgent work changes.
    Postponed(u64, u64),
    /// The host waits for the GPU.
    Wait,
}

pub(super) struct Decode {
    admission: BurstAdmission,
    step: Step,
    holds: bool,
    arrivals: Vec<u64>,
    /// Bursts of the running request that are done, and launches of the present one.
    bursts: u64,
    launches: u64,
    /// Each launch of the burst is checked.
    checks_each: bool,
    last_end: u64,
    pub(super) forecast: RequestForecast,
    pub(super) activity: (bool, u64),
    /// What the manager shows, and since when.
    pub(super) urgent: (UrgentWork, u64),
    pub(super) tokens: Vec<u64>,
    pub(super) postponed_ns: u64,
}

impl Decode {
    /// With these arrivals, the last one first.
    pub(super) fn new(arrivals: Vec<u64>, holds: bool) -> Self {
        Self {
            admission: BurstAdmission::default(),
            step: Step::Idle,
            holds,
            arrivals,
            bursts: 0,
            launches: 0,
            checks_each: false,
            last_end: 0,
            forecast: RequestForecast::default(),
            activity: (false, 0),
            urgent: (UrgentWork::None, 0),
            tokens: Vec::new(),
            postponed_ns: 0,
        }
    }

    pub(super) fn is_postponed(&self) -> bool {
        matches!(self.step, Step::Postponed(..))
    }

    pub(super) fn step(&mut self, now: u64, gpu: &mut Gpu) {
        let mine = Context::Decode as usize;
        match self.step {
            Step::Idle => {
                if self.arrivals.last().is_some_and(|at| *at <= now) {
                    self.arrivals.pop();
                    (self.bursts, self.step, self.last_end) = (0, Step::Launch(now), now);
                }
            }
            Step::Launch(at) if now >= at => {
                let checked = self.launches == 0 || self.checks_each;
                match self.admission.postpone(now, self.urgent.0).filter(|_| checked) {
                    Some(ns) => {
                        self.step = Step::Postponed(now, now + ns);
                        gpu.held_until[mine] = 0;
                    }
                    None => self.launch(now, gpu),
                }
            }
            Step::Postponed(since, until)
                if now >= until || self.urgent.1 > since && now >= self.urgent.1 + WAKE =>
            {
                self.admission.was_postponed(now - since);
                self.postponed_ns += now - since;
                self.step = Step::Launch(now);
            }
            Step::Wait if gpu.work[mine] == 0 => self.burst_ends(now, gpu),
            Step::Launch(_) | Step::Postponed(..) | Step::Wait => {}
        }
    }

    fn launch(&mut self, now: u64, gpu: &mut Gpu) {
        let mine = Context::Decode as usize;
        if self.launches == 0 {
            self.admission.burst_began(now);
            self.activity = (true, now);
        }
        self.forecast = self.admission.launched(now).unwrap_or(self.forecast);
        self.checks_each = self.admission.may_overlap(now, self.urgent.0);
        self.launches += 1;
        let is_prefill = self.bursts == 0;
        gpu.work[mine] += if is_prefill { KERNEL } else { TOKEN };
        let more = is_prefill && self.launches < LAUNCHES;
        self.step = if more { Step::Launch(now + LAUNCH_EVERY) } else { Step::Wait };
        gpu.held_until[mine] = if more && self.holds { now + LINGER } else { 0 };
    }

    fn burst_ends(&mut self, now: u64, gpu: &mut Gpu) {
        self.admission.burst_ended(now);
        self.activity = (false, now);
        if self.bursts > 0 {
            self.tokens.push(now - self.last_end);
        }
        (self.bursts, self.launches, self.last_end) = (self.bursts + 1, 0, now);
        if self.holds {
            gpu.held_until[Context::Decode as usize] = now + LINGER;
        }
        self.step = if self.bursts > TOKENS { Step::Idle } else { Step::Launch(now + GAP) };
    }
}
