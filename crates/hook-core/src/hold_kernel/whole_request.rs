//! Requests of several bursts of work with short gaps: the program waits for the GPU, and continues before a switch to another process
//! would pay. One hold kernel spans such a request.
//!
//! ```text
//!  program    copy  launch ─wait─ gap  launch ─wait─ gap  launch ─wait─ idle ........... next request
//!  activity   even  odd           even odd           even odd           even
//!  hold       ├──────────────────────────────────────────────────────────────┤ ends by itself after the linger time
//! ```

use super::copies::CopyChoice;
use super::request::{
    ActiveHold, BurstTimes, HoldEnd, HoldPlan, HoldRefusal, MAX_STILL_NS, Phase, Request, Trigger,
};
use super::state::HoldKernelState;
use super::tested::Tested;
use super::words::HoldWords;

/// Hold kernels of one request that may end within a burst; no other one follows.
const MAX_OUTLASTED: u8 = 2;

/// Requests in a row with so many of them, after which the device holds whole requests no more.
pub(super) const MAX_OUTLASTED_REQUESTS: u8 = 4;

/// How the end of a burst was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurstEnd {
    /// Some time later, by a query.
    Late,
    /// By a wait for a part of the context.
    Exact,
    /// By a wait for the whole context, which no hold kernel outlasts.
    ExactInterrupted,
}

/// The process has no work on the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idleness {
    since_ns: u64,
    end: BurstEnd,
}

impl HoldKernelState {
    /// Sets the page of the hold kernel that was planned and is to be launched.
    pub fn use_words(&mut self, words: HoldWords) {
        self.words = Some(words);
        self.activity.initialise(words);
    }

    /// Whether a request is going on, although no work is on the GPU.
    pub fn is_between_bursts(&self) -> bool {
        self.phase == Phase::Armed && self.request.is_some()
    }

    /// Whether the active hold kernel ends by itself when the request is over.
    pub fn is_released_by_request(&self) -> bool {
        self.active.is_some_and(|out| out.ends == HoldEnd::Request)
    }

    /// Continues the current request with a copy or a launch. `false` if the call begins another request, or the request needs another
    /// hold kernel: [`Self::begin_request`] is to be called.
    pub fn continue_request(&mut self, trigger: Trigger, now_ns: u64) -> bool {
        self.end_if_over(now_ns);
        self.forget_ended_hold();
        let needs_hold =
            |request: Request| request.with_hold && !request.is_interrupted && self.active.is_none();
        if self.request.is_none_or(needs_hold) || self.phase != Phase::Armed {
            return false;
        }
        self.idleness_ends(now_ns);
        if let Some(request) = &mut self.request {
            (request.began_ns, request.idle_since_ns) = (Some(now_ns), None);
        }
        self.phase = if trigger == Trigger::Launch { Phase::Running } else { Phase::Begun };
        self.change_activity(now_ns);
        true
    }

    /// Counts a hold kernel that ended within the burst that has just ended. Either the burst is long, and a hold kernel is of no use within
    /// it; or its work could not start beside the hold kernel (a full queue of the device, a kernel that needs all SMs). So a request has
    /// two such hold kernels at most, and a device stops using them after a few such requests in a row.
    pub(super) fn count_outlasted(&mut self, now_ns: u64) {
        let is_over = self.words.zip(self.active).is_some_and(|(words, out)| words.is_over(out.ticket));
        let holds = self.is_released_by_request();
        let Some(request) = &mut self.request else { return };
        let lasted_ns = now_ns.saturating_sub(request.began_ns.unwrap_or(now_ns));
        if holds && !is_over {
            self.outlasted_requests = 0;
        }
        if !holds || !is_over || lasted_ns < MAX_STILL_NS {
            return;
        }
        request.outlasted += 1;
        if request.outlasted == MAX_OUTLASTED {
            request.is_interrupted = true;
            self.outlasted_requests += 1;
            if self.outlasted_requests == MAX_OUTLASTED_REQUESTS {
                self.settings.whole_requests = false;
            }
        }
    }

    /// Begins a request that the program marks, whatever its gaps: it lasts until [`Self::end_marked`]. If a request was marked before, it
    /// is extended.
    ///
    /// # Errors
    /// Why no hold kernel is to be launched.
    pub fn begin_marked(&mut self, now_ns: u64) -> Result<HoldPlan, HoldRefusal> {
        if !self.settings.by_hint {
            return Err(HoldRefusal::Disabled);
        }
        if self.contenders == 0 {
            return Err(HoldRefusal::NoContenders);
        }
        if self.outlasted_requests >= MAX_OUTLASTED_REQUESTS {
            return Err(HoldRefusal::NotWorthIt);
        }
        self.expire_request(now_ns);
        self.end_if_over(now_ns);
        self.forget_ended_hold();
        self.is_explicit = true;
        if self.is_released_by_request() {
            self.change_activity(now_ns);
            return Err(HoldRefusal::AlreadyBegun);
        }
        if self.request.is_none() {
            self.request = Some(Request {
                trigger: Trigger::Hint,
                began_ns: None,
                announced_ns: now_ns,
                expires_ns: now_ns.saturating_add(MAX_STILL_NS),
                with_hold: true,
                copies: CopyChoice::Settled,
                predicted: None,
                linger_ns: self.linger_ns(),
                idle_since_ns: None,
                is_interrupted: false,
                outlasted: 0,
                bursts: BurstTimes::default(),
            });
            if self.phase == Phase::Armed {
                self.phase = Phase::Begun;
            }
        }
        if let Some(request) = &mut self.request {
            (request.with_hold, request.is_interrupted) = (true, false);
        }
        let ticket = self.next_ticket();
        self.change_activity(now_ns);
        self.active = Some(ActiveHold { ticket, ends: HoldEnd::Request });
        Ok(HoldPlan {
            ticket,
            starts_ns: now_ns,
            timeout_ns: MAX_STILL_NS,
            linger_ns: Some(self.linger_ns()),
        })
    }

    /// Ends a request that the program has marked. Without work on the GPU, its hold kernel ends now, otherwise with the work. Returns the
    /// ticket to release.
    pub fn end_marked(&mut self, now_ns: u64) -> Option<u32> {
        let was_marked = std::mem::take(&mut self.is_explicit);
        if !was_marked {
            return None;
        }
        if self.phase == Phase::Running {
            self.change_activity(now_ns);
            return None;
        }
        self.phase = Phase::Armed;
        self.end_request();
        self.take_hold_of_request()
    }

    /// Ends a request between two bursts, because another one is announced. Returns the ticket to release.
    pub fn end_between_bursts(&mut self) -> Option<u32> {
        if !self.is_between_bursts() {
            return None;
        }
        self.end_request();
        self.take_hold_of_request()
    }

    fn take_hold_of_request(&mut self) -> Option<u32> {
        self.forget_ended_hold();
        self.active.take_if(|out| out.ends == HoldEnd::Request).map(|out| out.ticket)
    }

    /// How long a new request may be idle.
    pub fn linger_ns(&self) -> u64 {
        if !self.settings.whole_requests {
            return 0;
        }
        self.linger.ns(self.switches_ns())
    }

    /// Whether hold kernels stay for a part of the time of a switch there and back, so that a request which has waited for the one before
    /// finds the GPU.
    pub(super) fn lingers_shortly(&self) -> bool {
        let linger_ns = self.linger_ns();
        linger_ns > 0 && (linger_ns as f64) < self.switches_ns().floor()
    }

    /// The time of a switch to another process and back.
    fn switches_ns(&self) -> f64 {
        2.0 * self.switch_cost.ns()
    }

    /// Forgets an active hold kernel that has ended by itself.
    pub(super) fn forget_ended_hold(&mut self) {
        let words = self.words;
        let is_over = |out: &mut ActiveHold| {
            out.ends == HoldEnd::Request && words.is_some_and(|words| words.is_over(out.ticket))
        };
        self.active.take_if(is_over);
    }

    /// Tells the active hold kernel what the process does.
    pub(super) fn change_activity(&mut self, now_ns: u64) {
        let working = self.phase == Phase::Running;
        self.activity.change(working || self.is_explicit, working);
        if let Some(words) = self.words.filter(|_| self.active.is_some()) {
            self.activity.store(words, now_ns);
        }
    }

    /// Records the first call after an idle time.
    pub(super) fn idleness_ends(&mut self, now_ns: u64) {
        let Some(Idleness { since_ns, end }) = self.idleness.take() else { return };
        match end {
            BurstEnd::Late => {}
            BurstEnd::Exact => self.linger.learn(now_ns.saturating_sub(since_ns), self.switches_ns()),
            BurstEnd::ExactInterrupted => self.linger.learn_interrupted(),
        }
    }

    /// Ends a request that has been idle for too long.
    pub(super) fn end_if_over(&mut self, now_ns: u64) {
        let Some(request) = self.request.filter(|_| self.phase == Phase::Armed) else { return };
        let idle_ns = request.idle_since_ns.map_or(0, |since| now_ns.saturating_sub(since));
        if idle_ns > self.idle_limit_ns(&request) {
            self.is_explicit = false;
            self.end_request();
            self.active.take_if(|out| out.ends == HoldEnd::Request);
        }
    }

    fn idle_limit_ns(&self, request: &Request) -> u64 {
        if self.is_explicit { MAX_STILL_NS } else { request.linger_ns }
    }

    /// Records the end of a burst. If the active hold kernel stays, returns until when.
    pub(super) fn burst_ends(&mut self, now_ns: u64, end: BurstEnd) -> Option<u64> {
        self.idleness = Some(Idleness { since_ns: now_ns, end });
        let request = self.request.as_mut()?;
        let began_ns = request.began_ns.take().filter(|_| end != BurstEnd::Late);
        request.bursts.add(began_ns.map(|began| now_ns.saturating_sub(began)));
        request.idle_since_ns = Some(now_ns);
        let request = *request;
        let limit_ns = self.idle_limit_ns(&request);
        if limit_ns == 0 {
            self.end_request();
            self.active.take_if(|out| out.ends == HoldEnd::Request);
            return None;
        }
        self.is_released_by_request().then(|| now_ns.saturating_add(limit_ns))
    }

    /// Ends the current request and learns from it.
    fn end_request(&mut self) {
        let Some(request) = self.request.take() else { return };
        let contesting = self.switch_cost.shows_contention();
        // A predicted request without a hold kernel is a sample to which those with one are compared.
        let (tested, with_hold) = match request.predicted {
            Some(predicted) => {
                (predicted.tested(), request.with_hold && request.trigger == Trigger::Predicted)
            }
            None => (Tested::of(request.trigger, request.linger_ns), request.with_hold),
        };
        let lasted_ns = request.bursts.mean_ns();
        self.copies.end_request(request.copies, request.announced_ns, lasted_ns);
        // The other way of copying would count for or against the hold kernel.
        let is_sample_of_copies = matches!(request.copies, CopyChoice::Sample { .. });
        let tested = tested.filter(|_| !is_sample_of_copies);
        if let Some(tested) = tested {
            self.benefit_tests.of_mut(tested).learn(with_hold, lasted_ns, contesting);
        }
    }
}
