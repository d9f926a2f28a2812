//! The part of a queue that a submission needs without the queue table's lock.

use std::sync::Arc;

use crate::admission::Admission;
use crate::ids::{QueueId, Stream};
use crate::in_flight::InFlight;
use crate::sync::{AtomicBool, Ordering};

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
