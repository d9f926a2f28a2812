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

mod contexts;
mod cost;
mod estimate;
mod machine;
mod rhythm;
mod terms;
mod trial;
mod waking;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use contexts::{Contexts, Standing};
pub use cost::Seen;
pub use machine::Machine;
pub use terms::{Hold, NoHold, Settings, Trigger};
pub use waking::Waking;

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
pub struct Hints {
    /// What the program's calls have to look at.
    word: AtomicU32,
    /// What [`Self::allow`] said last.
    company: AtomicU64,
    /// When a wait of the host last ended: a burst that ends at that very time ended exactly then.
    waited_ns: AtomicU64,
    machine: Mutex<Machine>,
}

impl Hints {
    /// Hints that are off until [`Self::allow`] says otherwise.
    pub fn new(settings: Settings) -> Self {
        Self {
            word: AtomicU32::new(0),
            company: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            machine: Mutex::new(Machine::new(settings)),
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
    pub fn is_held(&self) -> bool {
        self.has(HELD)
    }

    /// Whether the process may hold at all.
    pub fn is_watching(&self) -> bool {
        self.has(WATCHING)
    }

    /// How many other processes may use the GPU; nought if this process may not hold. A hold that is out stays.
    pub fn allow(&self, company: u64) {
        if self.company.load(Relaxed) != company {
            self.company.store(company, Relaxed);
            self.with(|machine| machine.allow(company));
        }
    }

    /// A request begins, or will in `lead_ns`: the hold to be launched for it, or why there is none.
    ///
    /// # Errors
    /// [`NoHold`] says why nothing is to be launched.
    pub fn begins(&self, trigger: Trigger, now_ns: u64, lead_ns: u64) -> Result<Hold, NoHold> {
        self.with(|machine| machine.begins(trigger, now_ns, lead_ns))
    }

    /// The first call of a request that was announced or foreseen is made at `now_ns`. Others teach nothing. `false` if that request
    /// never came and this is another, which has yet to begin.
    pub fn arrives(&self, now_ns: u64) -> bool {
        !self.has(AWAITED) || self.with(|machine| machine.arrives(now_ns))
    }

    /// Forgets a request that was announced or foreseen and has not come by now.
    pub fn give_up(&self, now_ns: u64) {
        if self.has(AWAITED) {
            self.with(|machine| machine.give_up(now_ns));
        }
    }

    /// The time of a planned hold has come: whether it is still to be launched.
    pub fn comes_due(&self, ticket: u32) -> bool {
        self.with(|machine| machine.comes_due(ticket))
    }

    /// The hold for the next request, if that is foreseen: [`Self::comes_due`] is to be asked in its time.
    pub fn foresee(&self, now_ns: u64) -> Option<Hold> {
        self.with(|machine| machine.foresee(now_ns))
    }

    /// The driver would not launch the hold.
    pub fn failed(&self, ticket: u32) {
        self.with(|machine| machine.failed(ticket));
    }

    /// A launch was submitted at `now_ns`: the ticket of the hold that it releases.
    pub fn launched(&self, now_ns: u64) -> Option<u32> {
        self.with(|machine| machine.launched(now_ns))
    }

    /// The host is about to wait for the GPU, for a whole context or only a part of one: the ticket to release.
    pub fn waits(&self, whole_context: bool) -> Option<u32> {
        self.with(|machine| machine.waits(whole_context))
    }

    /// A wait of the host ended at `now_ns`.
    pub fn waited(&self, now_ns: u64) {
        self.waited_ns.store(now_ns, Relaxed);
    }

    /// All work had finished at `now_ns`, and so many launches have been made since the start; that is asked for only if it matters.
    pub fn idle(&self, now_ns: u64, launches: impl FnOnce() -> u64) {
        if self.is_watching() {
            let (exact, launches) = (self.waited_ns.load(Relaxed) == now_ns, launches());
            self.with(|machine| machine.idle(now_ns, exact, launches));
        }
    }

    /// What the GPU wrote down about a hold that is over.
    pub fn seen(&self, seen: Seen) {
        self.with(|machine| machine.seen(seen));
    }

    /// Ends all hints: in the child of a fork, or when the driver cannot hold. Takes no lock.
    pub fn abandon(&self) {
        self.word.store(ABANDONED, SeqCst);
    }

    fn has(&self, bits: u32) -> bool {
        self.word.load(Relaxed) & bits != 0
    }

    fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.lock();
        let result = change(&mut machine);
        let word = [
            (machine.is_armed(), ARMED),
            (machine.is_begun(), BEGUN),
            (machine.is_held(), HELD),
            (machine.is_allowed(), WATCHING),
            (machine.is_awaited(), AWAITED),
        ];
        let word = word.iter().filter(|(holds, _)| *holds).fold(0, |all, (_, bit)| all | bit);
        // Once abandoned the word stays so, whoever was in here at that moment.
        let _abandoned = self.word.fetch_update(Release, Relaxed, |now| (now != ABANDONED).then_some(word));
        result
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
