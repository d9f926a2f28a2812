//! The part of a queue that a submission needs without the queue table's lock.

use std::sync::Arc;

use crate::ids::{QueueId, Stream};
use crate::in_flight::InFlight;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Set in an [`Admission`] while it is closed; the other bits count the threads inside.
const CLOSED: u64 = 1 << 63;

/// Admission of submitting threads to a queue: one word that says whether calls may go to the driver at once, and how
/// many are on their way. While it is closed, a thread has to ask the queue table.
#[derive(Debug)]
pub(crate) struct Admission(AtomicU64);

impl Default for Admission {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// A thread in the middle of a submission.
#[derive(Debug)]
pub(crate) struct Admitted<'a>(&'a Admission);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Admission {
    /// Enters if admission is open.
    ///
    /// The thread is counted first. A thread that closes admission therefore either is seen here, or sees this thread
    /// as an entrant until its command has reached the driver. Both change one word, so there is no third case.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Admitted<'_>> {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let admitted = Admitted(self);
        (before & CLOSED == 0).then_some(admitted)
    }

    /// Admits no further thread. Does not wait for the threads that were admitted.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Admits threads again. What was submitted before this call precedes what they submit.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Whether a thread may be in the middle of a submission. Exact once admission is closed, except for threads that
    /// are about to find it closed.
    pub(crate) fn has_entrants(&self) -> bool {
        self.0.load(Ordering::Acquire) & !CLOSED != 0
    }
}

/// One stream's queue. Threads that submit keep a reference, so that they need no look-up.
#[derive(Debug)]
pub struct Queue {
    id: QueueId,
    stream: Stream,
    pub(crate) admission: Admission,
    pub(crate) in_flight: InFlight,
    unrestricted: AtomicBool,
    counted: AtomicBool,
    gated: AtomicBool,
    wake_requested: AtomicBool,
}

impl Queue {
    pub(crate) fn new(id: QueueId, stream: Stream) -> Arc<Self> {
        Arc::new(Self {
            id,
            stream,
            admission: Admission::default(),
            in_flight: InFlight::default(),
            unrestricted: AtomicBool::new(true),
            counted: AtomicBool::new(false),
            gated: AtomicBool::new(false),
            wake_requested: AtomicBool::new(false),
        })
    }

    /// The engine's number of the queue.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Whether an admitted submission needs no further bookkeeping.
    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.unrestricted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_unrestricted(&self, unrestricted: bool) {
        self.unrestricted.store(unrestricted, Ordering::Relaxed);
    }

    /// Whether a bound holds, so that commands are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_counted(&self, counted: bool) {
        self.counted.store(counted, Ordering::Relaxed);
    }

    /// Whether the stream has ever had gates.
    pub(crate) fn is_gated(&self) -> bool {
        self.gated.load(Ordering::Acquire)
    }

    pub(crate) fn set_gated(&self) {
        self.gated.store(true, Ordering::Release);
    }

    /// Asks the next submission to wake the worker.
    pub(crate) fn request_wake(&self) {
        self.wake_requested.store(true, Ordering::SeqCst);
    }

    /// Called after a submission. Returns `true` if the worker asked to be woken for it.
    pub(crate) fn take_wake_request(&self) -> bool {
        self.wake_requested.load(Ordering::SeqCst) && self.wake_requested.swap(false, Ordering::SeqCst)
    }
}
