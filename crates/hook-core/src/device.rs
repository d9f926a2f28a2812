//! One GPU as this process uses it: gate, grant, tracker.
//!
//! The life of a grant:
//! ```text
//!  Detached ──connect──▶ Closed ──ask──▶ Asking ──answer──▶ Open ──deadline, idle──▶ Draining ──yield──▶ Closed
//!     ▲                                                                                          (or Asking again)
//!     └───────────────────────── any failure of the connection: Lost, then connect ─────────────────┘
//! ```
//! Application threads call [`Device::launch`]; one tracker thread calls [`Device::run_tracker`]. Application threads ask
//! and wait for the answer; only the tracker connects, drains and yields.

mod drain;
mod state;
mod tracker;
mod waits;
mod wanting;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub use state::Settings;
use state::State;
pub use tracker::Pause;
pub use waits::Wait;

use crate::captures::Captures;
use crate::counters::Counters;
use crate::gate::Gate;
use crate::hint::Hints;
use crate::outcome::{Bypass, Outcome};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread::Thread;

/// Gate and token client of one GPU.
#[derive(Debug)]
pub struct Device<'p, D, L, C> {
    ordinal: u32,
    driver: D,
    link: L,
    clock: C,
    captures: &'p Captures,
    counters: &'p Counters,
    settings: Settings,
    gate: Gate,
    hints: Hints,
    /// 0 to govern, else 1 + the index of the reason to let everything pass.
    passing: AtomicU8,
    /// What the manager was told: there is something to do.
    active: AtomicBool,
    /// The program asks again and again whether something is done, and has nothing else to do.
    asking: AtomicBool,
    /// When it last asked, in nanoseconds.
    asked_ns: AtomicU64,
    /// Threads in the middle of submitting work that passes no gate. Counted up with the lock, down without.
    submitting: AtomicUsize,
    state: Mutex<State>,
    /// Threads that want to launch wait here.
    wanting: Condvar,
    /// The tracker waits here.
    tracking: Condvar,
    /// Held while stream handles of the program are used by the tracker, and while the program destroys one.
    handles: Mutex<()>,
    /// Held during a whole drain, and while the program destroys a context.
    draining: Mutex<()>,
}

/// Leave to submit one launch. The launch counts as being submitted until this is dropped.
#[derive(Debug)]
pub struct Pass<'g> {
    gate: &'g Gate,
    shard: usize,
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.shard);
    }
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// A device that has not met its manager yet.
    pub fn new(
        ordinal: u32,
        (driver, link, clock): (D, L, C),
        (captures, counters): (&'p Captures, &'p Counters),
        settings: Settings,
    ) -> Self {
        Self {
            ordinal,
            driver,
            link,
            clock,
            captures,
            counters,
            gate: Gate::default(),
            hints: Hints::new(settings.hints),
            passing: AtomicU8::new(0),
            active: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            asked_ns: AtomicU64::new(0),
            submitting: AtomicUsize::new(0),
            state: Mutex::new(State::new(&settings)),
            settings,
            wanting: Condvar::new(),
            tracking: Condvar::new(),
            handles: Mutex::new(()),
            draining: Mutex::new(()),
        }
    }

    /// Asks leave for one launch on `stream`; waits for a grant if there is none.
    #[inline]
    pub fn launch(&self, stream: Stream, thread: &Thread) -> Outcome<Pass<'_>> {
        match self.launch_at_once(stream, thread) {
            Ok(pass) => Outcome::Governed(pass),
            Err(pass) => self.launch_slowly(stream, thread, pass),
        }
    }

    /// The launch path: `Ok` while a grant is valid and the thread has launched on the stream within it.
    ///
    /// Takes no lock, allocates nothing, makes no system call and cannot panic. `Err` is for [`Self::launch_slowly`].
    ///
    /// # Errors
    /// The launch has to be noted, or to wait.
    #[inline]
    pub fn launch_at_once(&self, stream: Stream, thread: &Thread) -> Result<Pass<'_>, Pass<'_>> {
        let shard = thread.shard();
        self.gate.enter(shard);
        let pass = Pass { gate: &self.gate, shard };
        if self.gate.is_open(&self.clock, &self.link)
            && thread.knows(self.ordinal, stream.handle, self.gate.epoch())
        {
            return Ok(pass);
        }
        Err(pass)
    }

    /// Launches begun.
    pub fn launches(&self) -> u64 {
        self.gate.launches()
    }

    /// Closes the gate for ever, in the child of a fork: the grant belongs to the parent.
    pub fn abandon(&self) {
        self.pass_for(Some(Bypass::Forked));
        self.gate.close();
        self.hints.abandon();
    }

    /// Lets everything pass from here on: the hook failed inside.
    pub fn stand_aside(&self) {
        // Under the lock, so that nobody begins to wait between the two lines.
        let _state = self.lock();
        self.pass_for(Some(Bypass::InternalError));
        self.wanting.notify_all();
    }

    /// The hints.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The connection to the manager.
    pub fn link(&self) -> &L {
        &self.link
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason for which everything passes, if it does.
    fn passing(&self) -> Option<Bypass> {
        let index = usize::from(self.passing.load(SeqCst)).checked_sub(1)?;
        Bypass::ALL.get(index).copied()
    }

    fn pass_for(&self, reason: Option<Bypass>) {
        let word = reason.map_or(0, |reason| u8::try_from(reason.index() + 1).unwrap_or(u8::MAX));
        self.passing.store(word, SeqCst);
    }

    fn is_open(&self) -> bool {
        self.gate.is_open(&self.clock, &self.link)
    }
}

#[cfg(test)]
mod tests;
