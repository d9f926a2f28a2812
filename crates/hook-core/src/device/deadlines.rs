//! Launches that wait because clients with an earlier deadline have urgent work.
//!
//! A waiting thread holds a grant and does not give it up: nothing is drained, requested or answered. It waits on a word of the grant page.

use super::state::State;
use super::{Device, LaunchPass};
use crate::burst_admission::UrgentWork;
use crate::platform::{Clock, Driver, TokenLink};
use crate::thread_state::ThreadState;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Waits while urgent work is a reason to postpone a launch. The launch does not count as in flight meanwhile. Without urgent work this
    /// is one load. `waits_since_ns` becomes the begin of the wait unless the launch has waited before.
    pub(super) fn postpone<'s>(
        &'s self,
        thread: &ThreadState,
        pass: LaunchPass<'s>,
        waits_since_ns: &mut Option<u64>,
    ) -> LaunchPass<'s> {
        if !self.is_to_postpone() {
            return pass;
        }
        drop(pass);
        let began = self.clock.now_ns();
        waits_since_ns.get_or_insert(began);
        self.change_postponed(true, 0);
        while let Some((urgent, timeout_ns)) = self.postponed_for() {
            let before = self.clock.now_ns();
            self.link.wait_for_urgent_work(urgent, timeout_ns);
            self.lock().admission.was_postponed(self.clock.now_ns().saturating_sub(before));
        }
        self.change_postponed(false, self.clock.now_ns().saturating_sub(began));
        self.gate.enter(thread.shard());
        LaunchPass { gate: &self.gate, shard: thread.shard() }
    }

    /// Whether a launch would be postponed now. Without urgent work this is one load.
    fn is_to_postpone(&self) -> bool {
        self.link.urgent_work() != UrgentWork::None && self.postponed_for().is_some()
    }

    /// Whether a launch would wait now: it is postponed, or needs a grant first.
    pub fn would_wait(&self) -> bool {
        self.is_to_postpone() || !self.is_open() && self.bypass_reason().is_none()
    }

    /// Records a launch that passes. Returns whether the later ones of its burst have to be checked, each by itself.
    pub(super) fn admit(&self, state: &mut State, now: u64) -> bool {
        if !state.follows_deadlines {
            return false;
        }
        if let Some(forecast) = state.admission.launched(now) {
            self.link.report_forecast(forecast);
        }
        match self.link.urgent_work() {
            UrgentWork::None => false,
            urgent => state.admission.may_overlap(now, urgent),
        }
    }

    /// The urgent work for which a launch is postponed now, and for how long at most. `None` also where the manager may be unable to
    /// withdraw it.
    fn postponed_for(&self) -> Option<(UrgentWork, u64)> {
        if !self.is_open() || self.bypass_reason().is_some() || self.is_silent(self.clock.now_ns()) {
            return None;
        }
        let urgent = self.link.urgent_work();
        let state = self.lock();
        let follows = state.follows_deadlines && state.grant.is_unlimited();
        let timeout_ns = state.admission.postpone(self.clock.now_ns(), urgent).filter(|_| follows)?;
        Some((urgent, timeout_ns))
    }

    fn change_postponed(&self, begins: bool, waited_ns: u64) {
        let mut state = self.lock();
        let before = state.postponed_threads;
        state.postponed_threads = if begins { before + 1 } else { before.saturating_sub(1) };
        let any = state.postponed_threads > 0;
        // With the lock held, so that the last report is the last change.
        self.link.report_postponed(any, waited_ns);
    }
}
