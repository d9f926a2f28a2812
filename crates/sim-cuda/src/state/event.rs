//! Events: a place in a stream, or in a capture.

use super::capture::Tips;
use super::context::Context;
use super::lock;
use sluice_driver_api::CUresult;
use sluice_sim::client::{Gpu, Mark};
use std::sync::{Arc, Mutex};

/// What was last recorded into an event.
#[derive(Clone)]
pub(crate) enum Recorded {
    /// Nothing yet.
    Never,
    /// A place in a stream of this context.
    At { context: Arc<Context>, mark: Mark },
    /// A place in a capture.
    Captured(Tips),
}

/// An event.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    /// Word that gets the time; none for an event without timing.
    pub(crate) word: Option<usize>,
    pub(crate) recorded: Mutex<Recorded>,
}

impl Event {
    /// What was last recorded.
    pub(crate) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }

    /// When it was reached; NOT_READY before that, INVALID_HANDLE for an event without a time.
    pub(crate) fn time(&self) -> Result<u64, CUresult> {
        let word = self.word.ok_or(CUresult::ERROR_INVALID_HANDLE)?;
        match self.recorded() {
            Recorded::Never => Err(CUresult::ERROR_INVALID_HANDLE),
            Recorded::Captured(_) => Err(CUresult::ERROR_CAPTURED_EVENT),
            Recorded::At { context, mark } if context.device.gpu.is_done(mark) => {
                Ok(context.device.gpu.event_time(word))
            }
            Recorded::At { .. } => Err(CUresult::ERROR_NOT_READY),
        }
    }

    fn gpu(&self) -> &Gpu {
        &self.context.device.gpu
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            self.gpu().close_event(word);
        }
    }
}
