//! One GPU as this process uses it: launch gate, grant, tracker.
//!
//! The states of a grant:
//! ```text
//!  Detached ─connect─▶ Closed ─request─▶ Requested ─answer─▶ Open ─deadline, idle─▶ Draining ─yield─▶ Closed
//!     ▲                                                                                       (or Requested again)
//!     └──────────────────────── any failure of the connection: Lost, then connect ──────────────────────┘
//! ```
//! Application threads call [`Device::try_launch`] and, if that fails, [`Device::acquire`]. One tracker thread calls
//! [`Device::run_tracker`]. Application threads request grants and wait for the answer; only the tracker connects, drains and
//! yields.

mod acquire;
mod counter_check;
mod deadline_polling;
mod deadlines;
mod drain;
mod host_waits;
mod kernel_copies;
mod latency;
mod sampling;
mod state;
mod tracker;
mod ungated_work;
mod waiting_commands;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};

pub use host_waits::HostWait;
pub use latency::UnnamedWait;
pub use state::Settings;
use state::State;
pub use tracker::NextStep;

use crate::captures::Captures;
use crate::deadline_polling::DeadlinePolling;
use crate::hold_kernel::HoldKernels;
use crate::launch_gate::LaunchGate;
use crate::lock;
use crate::outcome::{Bypass, Counters};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread_state::ThreadState;

/// Launch gate and token connection of one GPU.
#[derive(Debug)]
pub struct Device<'p, D, L, C> {
    /// The driver.
    pub driver: D,
    /// The connection to the manager.
    pub link: L,
    clock: C,
    captures: &'p Captures,
    counters: &'p Counters,
    settings: Settings,
    gate: LaunchGate,
    /// The controller of the hold kernels.
    pub hold_kernels: HoldKernels,
    /// 0 to govern calls; else 1 + the index of the reason for which all calls bypass.
    bypass: AtomicU8,
    /// The activity that was last reported to the manager: whether this process has GPU work. Written with the state
    /// locked; read without the lock by polls.
    reported_active: AtomicBool,
    /// It was last reported that all work only waits. Written with the state locked.
    reported_waits: AtomicBool,
    reported_contexts: AtomicBool,
    /// The program polls for the completion of work, and has no other work that is known.
    polling: AtomicBool,
    /// When the program last polled, in nanoseconds.
    polled_ns: AtomicU64,
    /// Steps of this process are measured. Written by the tracker; read without the lock by polls.
    measures_latency: AtomicBool,
    /// A poll of the program has found work unfinished since one last found it finished.
    found_unfinished: AtomicBool,
    /// When the call began that is recorded next, if that is known before; else 0, in nanoseconds.
    call_began_ns: AtomicU64,
    /// A launch has bypassed the launch gate, so the streams with work are not all known.
    has_unknown_work: AtomicBool,
    /// Threads that submit work which passes no launch gate. Incremented with the lock held, decremented without it.
    submitting_ungated: AtomicUsize,
    state: Mutex<State>,
    /// Threads that wait for a grant sleep here.
    launch_waiters: Condvar,
    /// The tracker sleeps here.
    tracker_wakeup: Condvar,
    /// The tracker's polling around the end of a grant.
    tracker_polling: Mutex<DeadlinePolling>,
    /// Held while the hook uses the program's stream handles, and while the program destroys one.
    handles_lock: Mutex<()>,
    /// Held during a whole drain, and while the program destroys a context.
    drain_lock: Mutex<()>,
    /// Since when the drain waits for whole contexts, or is about to, in nanoseconds. Set to `Some` with
    /// [`Self::handles_lock`] held.
    drains_contexts: Mutex<Option<u64>>,
    /// Threads that begin a capture sleep here until the drain has waited for whole contexts.
    contexts_drained: Condvar,
}

/// Permission to submit one launch. Until it is dropped the launch counts as in flight.
#[derive(Debug)]
pub struct LaunchPass<'g> {
    gate: &'g LaunchGate,
    shard: usize,
}

impl Drop for LaunchPass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.shard);
    }
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// A device that is not connected to its manager yet.
    pub fn new(
        ordinal: u32,
        (driver, link, clock): (D, L, C),
        (captures, counters): (&'p Captures, &'p Counters),
        settings: Settings,
    ) -> Self {
        Self {
            driver,
            link,
            clock,
            captures,
            counters,
            gate: LaunchGate::closed(ordinal),
            hold_kernels: HoldKernels::new(settings.hold_kernels),
            bypass: AtomicU8::new(0),
            reported_active: AtomicBool::new(false),
            reported_waits: AtomicBool::new(false),
            reported_contexts: AtomicBool::new(false),
            polling: AtomicBool::new(false),
            polled_ns: AtomicU64::new(0),
            measures_latency: AtomicBool::new(false),
            found_unfinished: AtomicBool::new(false),
            call_began_ns: AtomicU64::new(0),
            has_unknown_work: AtomicBool::new(false),
            submitting_ungated: AtomicUsize::new(0),
            state: Mutex::new(State::new(&settings)),
            tracker_polling: Mutex::new(DeadlinePolling::new(settings.polling_ns)),
            settings,
            launch_waiters: Condvar::new(),
            tracker_wakeup: Condvar::new(),
            handles_lock: Mutex::new(()),
            drain_lock: Mutex::new(()),
            drains_contexts: Mutex::new(None),
            contexts_drained: Condvar::new(),
        }
    }

    /// The launch path: `Ok` while a grant is valid and this thread has launched on the stream within it.
    ///
    /// Takes no lock, allocates nothing, makes no system call and cannot panic. `Err` is for [`Self::acquire`].
    ///
    /// # Errors
    /// The launch has to be noted or has to wait for a grant.
    #[inline]
    pub fn try_launch(&self, stream: Stream, thread: &ThreadState) -> Result<LaunchPass<'_>, LaunchPass<'_>> {
        let shard = thread.shard();
        self.gate.enter(shard);
        let pass = LaunchPass { gate: &self.gate, shard };
        if self.gate.is_open_to(thread, &self.clock, &self.link)
            && thread.has_noted(self.gate.device(), stream.handle, self.gate.epoch())
        {
            return Ok(pass);
        }
        Err(pass)
    }

    /// Launches begun since the start.
    pub fn launches(&self) -> u64 {
        self.gate.launches()
    }

    /// Closes the launch gate for good, in the child of a fork: the grant belongs to the parent.
    pub fn abandon(&self) {
        self.set_bypass(Some(Bypass::Forked));
        self.gate.close();
        self.hold_kernels.abandon();
    }

    /// Lets all calls bypass from here on, because the hook failed internally.
    pub fn bypass_all(&self) {
        // With the lock held, so that no thread begins to wait between the two lines.
        let _state = self.lock();
        self.set_bypass(Some(Bypass::InternalError));
        self.launch_waiters.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The reason for which all calls bypass, if they do.
    fn bypass_reason(&self) -> Option<Bypass> {
        let index = usize::from(self.bypass.load(SeqCst)).checked_sub(1)?;
        Bypass::ALL.get(index).copied()
    }

    fn set_bypass(&self, reason: Option<Bypass>) {
        let word = reason.map_or(0, |reason| u8::try_from(reason.index() + 1).unwrap_or(u8::MAX));
        self.bypass.store(word, SeqCst);
    }

    fn is_open(&self) -> bool {
        self.gate.is_open(&self.clock, &self.link)
    }
}

#[cfg(test)]
mod tests;
