//! The real driver behind the core's [`Driver`] trait.
//!
//! Contexts, streams and events cross the trait as numbers. The core does not use a stream after its destruction was announced, and the
//! governed functions announce it before they call the driver.

use std::sync::Mutex;

use sluice_driver_api::types::*;
use sluice_hook_core::device::Device;
use sluice_hook_core::event_pool::{EventPool, Returned};
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Driver, Mark, Stream, StreamKind, StreamLocation};

use crate::clock::HostClock;
use crate::gpu::{beside_captures, context_of, is_blocking, pointer, with_context};
use crate::link::TokenConnection;
use crate::{preempt, real};

/// A device of the core, on the real driver and with a connection to its manager.
pub(crate) type GpuDevice = Device<'static, Gpu, TokenConnection, HostClock>;

/// The driver, and the hook's own events.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    events: Mutex<EventPool>,
}

impl Driver for Gpu {
    fn locate(&self, stream: Stream) -> Option<StreamLocation> {
        // A created stream determines where the launch goes, whatever context is current.
        let created = (stream.kind == StreamKind::Created).then(|| handle(stream));
        let context = context_of(stream)?;
        let blocking = created.is_none_or(|stream| is_blocking(stream).unwrap_or(false));
        Some(StreamLocation { context, blocking })
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        let mut status = 0;
        // SAFETY: the stream is alive, see the module's header; `status` is writable.
        let asked =
            real::table().cuStreamIsCapturing.map(|ask| unsafe { ask(handle(stream), &raw mut status) });
        asked == Some(CUresult::SUCCESS) && status != 0
    }

    fn mark(&self, context: u64, stream: Stream) -> Option<Mark> {
        let record = || {
            let mark = self.event(context)?;
            let record = real::table().cuEventRecord?;
            // SAFETY: event and stream are alive and of the current context.
            let recorded = unsafe { record(pointer(mark.event), handle(stream)) };
            if recorded == CUresult::SUCCESS {
                Some(mark)
            } else {
                self.discard(mark);
                None
            }
        };
        beside_captures(|| with_context(context, record)).flatten()
    }

    fn wait(&self, mark: Mark) {
        with_context(mark.context, || {
            // SAFETY: the event is the hook's, and alive until its context is destroyed, which waits for the drain.
            real::table().cuEventSynchronize.map(|wait| unsafe { wait(pointer(mark.event)) })
        });
    }

    fn is_reached(&self, mark: Mark) -> bool {
        let Some(query) = real::table().cuEventQuery.filter(|_| lock(&self.events).exists(mark)) else {
            return true;
        };
        // SAFETY: the event is the hook's, and alive while no context ends, which the caller ensures.
        let asked = beside_captures(|| with_context(mark.context, || unsafe { query(pointer(mark.event)) }));
        asked != Some(CUresult::ERROR_NOT_READY)
    }

    fn elapsed_ns(&self, from: Mark, to: Mark) -> Option<u64> {
        let exist = {
            let events = lock(&self.events);
            events.exists(from) && events.exists(to)
        };
        if from.context != to.context || !exist {
            return None;
        }
        let elapsed = real::table().cuEventElapsedTime?;
        let mut ms = 0f32;
        // SAFETY: both events are the hook's, alive, and of one context; `ms` is writable.
        let asked = with_context(from.context, || unsafe {
            elapsed(&raw mut ms, pointer(from.event), pointer(to.event))
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be a positive time"
        )]
        (asked == Some(CUresult::SUCCESS) && ms.is_finite() && ms >= 0.0)
            .then(|| (f64::from(ms) * 1e6) as u64)
    }

    fn discard(&self, mark: Mark) {
        if lock(&self.events).put_back(mark) != Returned::Surplus {
            return;
        }
        with_context(mark.context, || {
            // SAFETY: the event is the hook's and no longer used.
            real::table().cuEventDestroy_v2.map(|destroy| unsafe { destroy(pointer(mark.event)) })
        });
    }

    fn is_idle(&self, context: u64, stream: Stream) -> Option<bool> {
        if stream.kind == StreamKind::PerThread {
            return None;
        }
        if self.has_queued(context) {
            return Some(false);
        }
        let query = real::table().cuStreamQuery?;
        // SAFETY: the stream is alive, see the module's header.
        let status = with_context(context, || unsafe { query(handle(stream)) })?;
        // A context with an error runs nothing.
        Some(status != CUresult::ERROR_NOT_READY)
    }

    fn has_queued(&self, context: u64) -> bool {
        preempt::has_queued_commands(context)
    }

    fn has_queued_of_destroyed(&self, context: u64) -> bool {
        preempt::has_queued_commands_of_destroyed(context)
    }

    fn drain_context(&self, context: u64) {
        with_context(context, || {
            // SAFETY: no arguments; waits for the context that `with_context` made current.
            real::table().cuCtxSynchronize.map(|wait| unsafe { wait() })
        });
    }
}

impl Gpu {
    /// Forgets the events of a context that has ended.
    pub(crate) fn forget_context(&self, context: u64) {
        lock(&self.events).forget_context(context);
    }

    fn event(&self, context: u64) -> Option<Mark> {
        let free = lock(&self.events).take(context);
        if free.is_some() {
            return free;
        }
        let create = real::table().cuEventCreate?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is writable, and the context it is to belong to is current.
        let created = unsafe { create(&raw mut event, CU_EVENT_BLOCKING_SYNC) };
        (created == CUresult::SUCCESS)
            .then(|| lock(&self.events).add(context, event.expose_provenance() as u64))
    }
}

fn handle(stream: Stream) -> CUstream {
    match stream.kind {
        // The null handle means the legacy stream in every entry point used here.
        StreamKind::Legacy => std::ptr::null_mut(),
        StreamKind::Created => pointer(stream.driver_handle()),
        StreamKind::PerThread => preempt::own_stand_in().unwrap_or_else(|| pointer(stream.driver_handle())),
    }
}
