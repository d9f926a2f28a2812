//! Switches the GPU to a latency-critical process before its kernels arrive.
//!
//! A context switch takes longer than many requests need for their preparation. A *hold kernel* polls a word in host memory. It is
//! launched when a request arrives and brings the process's context onto the GPU while the input is still being copied. The host
//! releases it when the request's own kernels have been submitted.
//!
//! ```text
//!  Running ──all work finished──▶ Armed ──first copy or launch, or a hint──▶ Begun ──first launch──▶ Running
//!                                         the hold kernel is planned here            it is released here, at a wait,
//!                                                                                    or by its timeout
//! ```
//! If a request has several bursts of work with short gaps, one hold kernel spans all of them; see `whole_request`.
//! If requests arrive at regular intervals, the hold kernel is launched before the next one is due.
//! The program's calls go through [`HoldKernels`]: one relaxed load where there is nothing to do. [`HoldKernelState`] takes the
//! decisions; it uses no clock, no driver and no lock.

pub(crate) mod arrival_predictor;
mod benefit_test;
mod contexts;
mod copies;
mod lead;
mod linger;
mod predicted;
mod preparation_estimate;
mod request;
mod state;
mod switch_cost;
mod tested;
mod wakeup_latency;
mod whole_request;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use crate::lock;

pub use arrival_predictor::ArrivalPredictor;
pub use contexts::{ContextState, HoldContexts};
pub use linger::Linger;
pub use preparation_estimate::ExpectedTime;
pub use request::{HoldLimits, HoldPlan, HoldRefusal, Settings, Trigger};
pub use state::HoldKernelState;
pub use switch_cost::HoldTimes;
pub use wakeup_latency::WakeupLatency;
pub use whole_request::BurstEnd;
pub use words::HoldWords;

/// The next copy or launch may begin a request.
const ARMED: u32 = 1 << 0;
/// The next launch is the first of its request.
const BEGUN: u32 = 1 << 1;
/// A hold kernel is active or planned.
const ACTIVE: u32 = 1 << 2;
/// Hold kernels are allowed, so the ends of bursts are recorded.
const ALLOWED: u32 = 1 << 3;
/// Permanently off: this is the child of a fork, or the driver failed.
const ABANDONED: u32 = 1 << 4;
/// A request was announced or predicted, and its first call is still to come.
const AWAITED: u32 = 1 << 5;
/// The active hold kernel is released by a launch, or by a wait for a part of the context.
const RELEASED_BY_PARTS: u32 = 1 << 6;
/// A request is going on, although no work is on the GPU.
const BETWEEN_BURSTS: u32 = 1 << 7;

/// The controller of one device's hold kernels.
#[derive(Debug)]
pub struct HoldKernels {
    /// The flags above, which the program's calls test.
    word: AtomicU32,
    /// The last argument of [`Self::set_contenders`].
    contenders: AtomicU64,
    /// When the last wait of the host ended. The end of a burst is exact if a wait ended at the same time.
    wait_ended_ns: AtomicU64,
    /// When the last wait for a whole context ended.
    context_wait_ended_ns: AtomicU64,
    /// Until when a kernel makes small copies; 0 if a copy engine does.
    copies_by_kernel_until_ns: AtomicU64,
    /// A kernel has made a copy, which the state does not know yet.
    made_copy_by_kernel: AtomicBool,
    state: Mutex<HoldKernelState>,
}

impl HoldKernels {
    /// A controller that is off until [`Self::set_contenders`] is called.
    pub fn new(settings: Settings) -> Self {
        Self {
            word: AtomicU32::new(0),
            contenders: AtomicU64::new(0),
            wait_ended_ns: AtomicU64::new(0),
            context_wait_ended_ns: AtomicU64::new(0),
            copies_by_kernel_until_ns: AtomicU64::new(0),
            made_copy_by_kernel: AtomicBool::new(false),
            state: Mutex::new(HoldKernelState::new(settings)),
        }
    }

    /// Whether a copy may begin a request, or be the first call of an announced or predicted one.
    #[inline]
    pub fn watches_copies(&self) -> bool {
        self.has(ARMED | AWAITED)
    }

    /// Whether a copy or a launch may begin a request.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.has(ARMED)
    }

    /// Whether a launch may begin a request, or is the first launch of one.
    #[inline]
    pub fn watches_launches(&self) -> bool {
        self.has(ARMED | BEGUN)
    }

    /// Whether a hold kernel is active or planned. A wait for the whole context has to release it.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.has(ACTIVE)
    }

    /// Whether a launch, or a wait for a part of the context, may have to release a hold kernel.
    #[inline]
    pub fn is_released_by_parts(&self) -> bool {
        self.has(RELEASED_BY_PARTS)
    }

    /// Whether a kernel may make a small copy; [`Self::copies_by_kernel`] decides.
    #[inline]
    pub fn may_copy_by_kernel(&self) -> bool {
        self.copies_by_kernel_until_ns.load(Relaxed) != 0
    }

    /// Whether a kernel makes a small copy at `now_ns`.
    pub fn copies_by_kernel(&self, now_ns: u64) -> bool {
        now_ns < self.copies_by_kernel_until_ns.load(Relaxed)
    }

    /// Records that a kernel has made a copy.
    pub fn copy_made_by_kernel(&self) {
        self.made_copy_by_kernel.store(true, Relaxed);
    }

    /// Whether hold kernels are allowed.
    pub fn is_allowed(&self) -> bool {
        self.has(ALLOWED)
    }

    /// Sets the number of contenders; 0 if hold kernels are not allowed. An active hold kernel stays.
    pub fn set_contenders(&self, contenders: u64) {
        if self.contenders.load(Relaxed) != contenders {
            self.contenders.store(contenders, Relaxed);
            self.with(|state| state.set_contenders(contenders));
        }
    }

    /// Records that the first call of an announced or predicted request was made at `now_ns`. Later calls have no effect. `false` if that
    /// request never came: the call belongs to another request, which is still to begin.
    pub fn request_arrived(&self, now_ns: u64) -> bool {
        !self.has(AWAITED) || self.with(|state| state.request_arrived(now_ns))
    }

    /// Continues a request with a copy or a launch after an idle time. `false` if that is not possible; see
    /// [`HoldKernelState::continue_request`].
    pub fn continue_request(&self, trigger: Trigger, now_ns: u64) -> bool {
        self.has(BETWEEN_BURSTS) && self.with(|state| state.continue_request(trigger, now_ns))
    }

    /// Forgets an announced or predicted request that has not come in time.
    pub fn expire_request(&self, now_ns: u64) {
        if self.has(AWAITED) {
            self.with(|state| state.expire_request(now_ns));
        }
    }

    /// Records that a wait of the host ended at `now_ns`, for a whole context or for a part.
    pub fn host_wait_ended(&self, now_ns: u64, whole_context: bool) {
        self.wait_ended_ns.store(now_ns, Relaxed);
        if whole_context {
            self.context_wait_ended_ns.store(now_ns, Relaxed);
        }
    }

    /// Records that all work had finished at `now_ns`. `launches` returns the launches since the start and is called only if needed. If
    /// the active hold kernel stays, returns until when: the process counts as active until then.
    pub fn work_finished(&self, now_ns: u64, launches: impl FnOnce() -> u64) -> Option<u64> {
        if !self.has(ALLOWED | ACTIVE) {
            return None;
        }
        let end = match (self.wait_ended_ns.load(Relaxed), self.context_wait_ended_ns.load(Relaxed)) {
            (_, context) if context == now_ns => BurstEnd::ExactInterrupted,
            (any, _) if any == now_ns => BurstEnd::Exact,
            _ => BurstEnd::Late,
        };
        let launches = launches();
        self.with(|state| state.work_finished(now_ns, end, launches))
    }

    /// Disables hold kernels for good: in the child of a fork, or if the driver cannot launch them. Takes no lock.
    pub fn abandon(&self) {
        self.word.store(ABANDONED, SeqCst);
        self.copies_by_kernel_until_ns.store(0, SeqCst);
    }

    fn has(&self, bits: u32) -> bool {
        self.word.load(Relaxed) & bits != 0
    }

    /// Calls `change` with the locked state, then updates the flags that are read without the lock. [`Self::set_contenders`],
    /// [`Self::request_arrived`], [`Self::expire_request`] and [`Self::work_finished`] have their own functions, which avoid the lock where
    /// they can.
    pub fn with<T>(&self, change: impl FnOnce(&mut HoldKernelState) -> T) -> T {
        let mut state = lock(&self.state);
        if self.made_copy_by_kernel.load(Relaxed) {
            self.made_copy_by_kernel.store(false, Relaxed);
            state.copies.made_by_kernel();
        }
        let result = change(&mut state);
        let flag = |holds: bool, bit: u32| if holds { bit } else { 0 };
        let word = flag(state.is_armed(), ARMED)
            | flag(state.has_begun(), BEGUN)
            | flag(state.is_active(), ACTIVE)
            | flag(state.is_allowed(), ALLOWED)
            | flag(state.is_awaited(), AWAITED)
            | flag(state.is_active() && !state.is_released_by_request(), RELEASED_BY_PARTS)
            | flag(state.is_between_bursts(), BETWEEN_BURSTS);
        // The flag stays set, even if another thread was in this function when it was set.
        let until_ns = if self.has(ABANDONED) { 0 } else { state.copies.by_kernel_until_ns() };
        self.copies_by_kernel_until_ns.store(until_ns, Relaxed);
        let _abandoned = self.word.fetch_update(Release, Relaxed, |now| (now != ABANDONED).then_some(word));
        result
    }
}
