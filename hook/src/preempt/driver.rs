//! The real driver behind the engine's `Driver` trait.

use std::cell::Cell;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::command::{Command, Work};
use sluice_preempt::driver::{ChannelGroups, Driver, EventFlags, StreamGates};
use sluice_preempt::ids::{Code, Context, Event, Stream};

use super::engine::RealDriver;
use super::own_calls::{as_own_call, ask, code, status, within};
use super::{launches, loads};
use crate::captures::CAPTURES;
use crate::gpu::pointer;
use crate::real;

thread_local! {
    /// The capture mode of the thread before it was relaxed.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(0) };
}

impl Driver for RealDriver {
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code> {
        within(stream.context, || match command {
            Command::Call(call) => call.make(stream.handle),
            Command::Launch(launch) => {
                let first = loads::before_launch(stream, Work::Kernel(launch.function));
                let result = launches::submit(stream, launch);
                loads::launched(first, status(result));
                result
            }
            Command::Graph(graph) => ask!(cuGraphLaunch(pointer(*graph), pointer(stream.handle))),
        })
    }

    fn record(&self, stream: Stream, event: Event) -> Result<(), Code> {
        within(stream.context, || ask!(cuEventRecord(pointer(event.0), pointer(stream.handle))))
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Code> {
        within(stream.context, || ask!(cuStreamWaitEvent(pointer(stream.handle), pointer(event.0), 0)))
    }

    fn create_event(&self, context: Context, flags: EventFlags) -> Result<Event, Code> {
        within(context, || {
            let mut event = std::ptr::null_mut();
            ask!(cuEventCreate(&raw mut event, flags)).map(|()| Event(event.expose_provenance() as u64))
        })
    }

    fn destroy_event(&self, event: Event) -> Result<(), Code> {
        as_own_call(|| ask!(cuEventDestroy_v2(pointer(event.0))))
    }

    fn query_event(&self, event: Event) -> Result<(), Code> {
        as_own_call(|| ask!(cuEventQuery(pointer(event.0))))
    }

    fn synchronize_event(&self, event: Event) -> Result<(), Code> {
        as_own_call(|| ask!(cuEventSynchronize(pointer(event.0))))
    }

    fn elapsed_ns(&self, from: Event, to: Event) -> Result<u64, Code> {
        let mut ms = 0f32;
        as_own_call(|| ask!(cuEventElapsedTime(&raw mut ms, pointer(from.0), pointer(to.0))))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made a positive time")]
        Ok((f64::from(ms).max(0.0) * 1e6).round() as u64)
    }

    fn query_stream(&self, stream: Stream) -> Result<(), Code> {
        within(stream.context, || ask!(cuStreamQuery(pointer(stream.handle))))
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), Code> {
        within(stream.context, || ask!(cuStreamSynchronize(pointer(stream.handle))))
    }

    fn destroy_stream(&self, stream: Stream) -> Result<(), Code> {
        self.gates.free(stream);
        within(stream.context, || ask!(cuStreamDestroy_v2(pointer(stream.handle))))
    }

    fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        as_own_call(|| ask!(cuGraphExecDestroy(pointer(graph))))
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        // Without any capture in the process, a stream cannot be drawn into one.
        CAPTURES.any() && {
            let mut capturing = 0;
            let asked = within(stream.context, || {
                ask!(cuStreamIsCapturing(pointer(stream.handle), &raw mut capturing))
            });
            match asked {
                Ok(()) => capturing != 0,
                // The legacy default stream, while a blocking stream is being captured.
                Err(Code(refused)) => refused == CUresult::ERROR_STREAM_CAPTURE_IMPLICIT.0,
            }
        }
    }

    fn exchange_capture_relaxed(&self, relaxed: bool) -> bool {
        let mut mode = if relaxed { CU_STREAM_CAPTURE_MODE_RELAXED } else { MODE.get() };
        if as_own_call(|| ask!(cuThreadExchangeStreamCaptureMode(&raw mut mode))).is_err() {
            return relaxed;
        }
        if relaxed && mode != CU_STREAM_CAPTURE_MODE_RELAXED {
            MODE.set(mode);
        }
        mode == CU_STREAM_CAPTURE_MODE_RELAXED
    }

    fn stream_gates(&self) -> Option<&dyn StreamGates> {
        self.gates.usable()
    }

    fn channel_groups(&self) -> Option<&dyn ChannelGroups> {
        Some(&self.groups)
    }
}
