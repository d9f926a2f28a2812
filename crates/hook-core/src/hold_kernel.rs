//! Getting a latency-critical process onto the GPU before its kernels are there.
//!
//! Switching the GPU from one process to another takes longer than many a request prepares. A *hold* is a kernel that waits
//! for a word of the host's: launched when a request arrives, it brings the process's context onto the GPU while the input
//! is still being copied, and is released when the request's own kernels have been submitted.
//!
//! ```text
//!  Running ──all work finished──▶ Armed ──first copy or launch, or a hint──▶ Begun ──first launch──▶ Running
//!                                              a hold is planned here           released here, or at a wait, or in time
//! ```
//! Where requests come at a steady pace, the hold is launched before the next one is due.
//! [`Hints`] is what the calls of the program go through: one relaxed load where there is nothing to do. What to do is
//! decided by [`Machine`], which knows no clock, no driver and no lock.

mod arrival_predictor;
mod benefit_test;
mod conditions;
mod contexts;
mod preparation_estimate;
mod state;
mod switch_cost;
mod wakeup_latency;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use conditions::{HoldPlan, HoldRefusal, Settings, Trigger};
pub use contexts::{ContextState, HoldContexts};
pub use state::HoldKernelState;
pub use switch_cost::HoldTimes;
pub use wakeup_latency::WakeupLatency;

/// The next copy or launch may begin a hold.
const ARMED: u32 = 1 << 0;
/// The next launch is the first of its request.
const BEGUN: u32 = 1 << 1;
/// A hold is out, or will be.
const HELD: u32 = 1 << 2;
/// Ends of bursts are told to the machine.
const WATCHING: u32 = 1 << 3;
/// For good: this is the child of a fork.
const ABANDONED: u32 = 1 << 4;
/// A request was announced or foreseen, and its first call is to come.
const AWAITED: u32 = 1 << 5;

/// The hints of one device.
#[derive(Debug)]
pub struct HoldKernels {
    /// What the program's calls have to look at.
    word: AtomicU32,
    /// What [`Self::allow`] said last.
    contenders: AtomicU64,
    /// When a wait of the host last ended: a burst that ends at that very time ended exactly then.
    wait_ended_ns: AtomicU64,
    state: Mutex<HoldKernelState>,
}

impl HoldKernels {
    /// Hints that are off until [`Self::allow`] says otherwise.
    pub fn new(settings: Settings) -> Self {
        Self {
            word: AtomicU32::new(0),
            contenders: AtomicU64::new(0),
            wait_ended_ns: AtomicU64::new(0),
            state: Mutex::new(HoldKernelState::new(settings)),
        }
    }

    /// Whether a copy may begin a hold, or be the first call of a request that has one.
    #[inline]
    pub fn watches_copies(&self) -> bool {
        self.has(ARMED | AWAITED)
    }

    /// Whether a copy or a launch may begin a hold.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.has(ARMED)
    }

    /// Whether a launch may begin a hold, or is the first of a request.
    #[inline]
    pub fn watches_launches(&self) -> bool {
        self.has(ARMED | BEGUN)
    }

    /// Whether a wait of the host may have to release a hold.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.has(HELD)
    }

    /// Whether the process may hold at all.
    pub fn is_allowed(&self) -> bool {
        self.has(WATCHING)
    }

    /// How many other processes may use the GPU; nought if this process may not hold. A hold that is out stays.
    pub fn set_contenders(&self, company: u64) {
        if self.contenders.load(Relaxed) != company {
            self.contenders.store(company, Relaxed);
            self.with(|machine| machine.set_contenders(company));
        }
    }

    /// A request begins, or will in `lead_ns`: the hold to be launched for it, or why there is none.
    ///
    /// # Errors
    /// [`NoHold`] says why nothing is to be launched.
    pub fn begin_request(
        &self,
        trigger: Trigger,
        now_ns: u64,
        lead_ns: u64,
    ) -> Result<HoldPlan, HoldRefusal> {
        self.with(|machine| machine.begin_request(trigger, now_ns, lead_ns))
    }

    /// The first call of a request that was announced or foreseen is made at `now_ns`. Others teach nothing. `false` if that request
    /// never came and this is another, which has yet to begin.
    pub fn request_arrived(&self, now_ns: u64) -> bool {
        !self.has(AWAITED) || self.with(|machine| machine.request_arrived(now_ns))
    }

    /// Forgets a request that was announced or foreseen and has not come by now.
    pub fn expire_request(&self, now_ns: u64) {
        if self.has(AWAITED) {
            self.with(|machine| machine.expire_request(now_ns));
        }
    }

    /// The time of a planned hold has come: whether it is still to be launched.
    pub fn take_due(&self, ticket: u32) -> bool {
        self.with(|machine| machine.take_due(ticket))
    }

    /// The hold for the next request, if that is foreseen: [`Self::comes_due`] is to be asked in its time.
    pub fn predict_next(&self, now_ns: u64) -> Option<HoldPlan> {
        self.with(|machine| machine.predict_next(now_ns))
    }

    /// The driver would not launch the hold.
    pub fn launch_failed(&self, ticket: u32) {
        self.with(|machine| machine.launch_failed(ticket));
    }

    /// A launch was submitted at `now_ns`: the ticket of the hold that it releases.
    pub fn launch_submitted(&self, now_ns: u64) -> Option<u32> {
        self.with(|machine| machine.launch_submitted(now_ns))
    }

    /// The host is about to wait for the GPU, for a whole context or only a part of one: the ticket to release.
    pub fn host_wait_begins(&self, whole_context: bool) -> Option<u32> {
        self.with(|machine| machine.host_wait_begins(whole_context))
    }

    /// A wait of the host ended at `now_ns`.
    pub fn host_wait_ended(&self, now_ns: u64) {
        self.wait_ended_ns.store(now_ns, Relaxed);
    }

    /// All work had finished at `now_ns`, and so many launches have been made since the start; that is asked for only if it matters.
    pub fn work_finished(&self, now_ns: u64, launches: impl FnOnce() -> u64) {
        if self.is_allowed() {
            let (exact, launches) = (self.wait_ended_ns.load(Relaxed) == now_ns, launches());
            self.with(|machine| machine.work_finished(now_ns, exact, launches));
        }
    }

    /// What the GPU wrote down about a hold that is over.
    pub fn learn_times(&self, seen: HoldTimes) {
        self.with(|machine| machine.learn_times(seen));
    }

    /// Ends all hints: in the child of a fork, or when the driver cannot hold. Takes no lock.
    pub fn abandon(&self) {
        self.word.store(ABANDONED, SeqCst);
    }

    fn has(&self, bits: u32) -> bool {
        self.word.load(Relaxed) & bits != 0
    }

    fn with<T>(&self, change: impl FnOnce(&mut HoldKernelState) -> T) -> T {
        let mut machine = self.lock();
        let result = change(&mut machine);
        let word = [
            (machine.is_armed(), ARMED),
            (machine.has_begun(), BEGUN),
            (machine.is_active(), HELD),
            (machine.is_allowed(), WATCHING),
            (machine.is_awaited(), AWAITED),
        ];
        let word = word.iter().filter(|(holds, _)| *holds).fold(0, |all, (_, bit)| all | bit);
        // Once abandoned the word stays so, whoever was in here at that moment.
        let _abandoned = self.word.fetch_update(Release, Relaxed, |now| (now != ABANDONED).then_some(word));
        result
    }

    fn lock(&self) -> MutexGuard<'_, HoldKernelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
