//! A queue as threads hold it: what a submission needs without asking the book.

use std::sync::Arc;

use crate::door::Door;
use crate::flight::Flight;
use crate::ids::{QueueId, Stream};
use crate::sync::{AtomicBool, Ordering};

/// One stream's queue. Kept by whoever submits to the stream, so that it has not to be looked up.
#[derive(Debug)]
pub struct Queue {
    id: QueueId,
    stream: Stream,
    pub(crate) door: Door,
    pub(crate) flight: Flight,
    plain: AtomicBool,
    counted: AtomicBool,
    gated: AtomicBool,
    dozing: AtomicBool,
}

impl Queue {
    pub(crate) fn new(id: QueueId, stream: Stream) -> Arc<Self> {
        Arc::new(Self {
            id,
            stream,
            door: Door::default(),
            flight: Flight::default(),
            plain: AtomicBool::new(true),
            counted: AtomicBool::new(false),
            gated: AtomicBool::new(false),
            dozing: AtomicBool::new(false),
        })
    }

    /// The engine's number of it.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Whether submissions that pass need no further thought.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    pub(crate) fn set_plain(&self, plain: bool) {
        self.plain.store(plain, Ordering::Relaxed);
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

    /// Nobody looks at the queue until something is submitted.
    pub(crate) fn doze(&self) {
        self.dozing.store(true, Ordering::SeqCst);
    }

    /// Something was submitted; whether somebody wants to be woken for it.
    pub(crate) fn stir(&self) -> bool {
        self.dozing.load(Ordering::SeqCst) && self.dozing.swap(false, Ordering::SeqCst)
    }
}
