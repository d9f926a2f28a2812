//! Streams and events.

pub(crate) use super::memop::*;
// Functions that differ in name only.
pub(crate) use self::{
    cuEventDestroy_v2 as cuEventDestroy, cuEventElapsedTime_v2 as cuEventElapsedTime,
    cuStreamDestroy_v2 as cuStreamDestroy,
};

use super::{functions, with_twin};
use crate::border::{Ptr, Status};
use crate::state::context::current;
use crate::state::driver::{driver, driver_for_unsafe_call};
use crate::state::graph::Body;
use crate::state::host::{self, Call};
use crate::state::stream::{Event, Null, Recorded, Stream, stream};
use crate::state::{capture, lock, status_of};
use sluice_driver_api::types::*;
use sluice_sim::client::StreamCommand;
use sluice_sim::engine::StreamKind;
use std::sync::{Arc, Mutex};

/// The most urgent priority; 0 is the least.
pub(super) const GREATEST_PRIORITY: i32 = -5;

pub(crate) fn cuStreamCreateWithPriority(handle: Ptr<CUstream>, flags: c_uint, priority: c_int) -> Status {
    let kind = match flags {
        CU_STREAM_DEFAULT => StreamKind::Blocking,
        CU_STREAM_NON_BLOCKING => StreamKind::NonBlocking,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let context = current()?;
    handle.required()?;
    let stream = Stream::open(&context, kind, flags, priority)?;
    handle.write_handle(stream.handle)
}

pub(crate) fn cuStreamDestroy_v2(handle: Ptr<CUstream_st>) -> Status {
    let driver = driver()?;
    let stream = driver.streams.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    driver.captures.forbid_stream(&stream)?;
    driver.streams.remove(stream.handle);
    stream.context.remove_stream(&stream);
    Ok(())
}

with_twin! {
    fn cuStreamSynchronize / cuStreamSynchronize_ptsz(on: Ptr<CUstream_st>) |null| = {
        let stream = stream(on, null)?;
        driver()?.captures.forbid_stream(&stream)?;
        driver_for_unsafe_call()?;
        stream.synchronize()
    };

    fn cuStreamQuery / cuStreamQuery_ptsz(on: Ptr<CUstream_st>) |null| = {
        let stream = stream(on, null)?;
        driver()?.captures.forbid_stream(&stream)?;
        driver_for_unsafe_call()?;
        stream.query()
    };

    fn cuStreamGetFlags / cuStreamGetFlags_ptsz(on: Ptr<CUstream_st>, flags: Ptr<c_uint>) |null|
        = flags.write(stream(on, null)?.flags);
    fn cuStreamGetPriority / cuStreamGetPriority_ptsz(on: Ptr<CUstream_st>, priority: Ptr<c_int>) |null|
        = priority.write(stream(on, null)?.priority);
    fn cuStreamGetId / cuStreamGetId_ptsz(on: Ptr<CUstream_st>, id: Ptr<c_ulonglong>) |null|
        = id.write(stream(on, null)?.handle as u64);
    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(on: Ptr<CUstream_st>, context: Ptr<CUcontext>) |null|
        = context.write_handle(stream(on, null)?.context.handle);

    fn cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(
        on: Ptr<CUstream_st>, context: Ptr<CUcontext>, green: Ptr<CUgreenCtx>
    ) |null| = {
        green.write_if_wanted(std::ptr::null_mut());
        context.write_handle(stream(on, null)?.context.handle)
    };

    fn cuStreamGetDevice / cuStreamGetDevice_ptsz(on: Ptr<CUstream_st>, device: Ptr<CUdevice>) |null|
        = device.write(stream(on, null)?.context.device.number());

    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz(on: Ptr<CUstream_st>, event: Ptr<CUevent_st>, _flags: c_uint) |null|
        = {
        let stream = stream(on, null)?;
        let event = driver()?.events.get(event.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
        match event.recorded() {
            Recorded::Captured(at) => capture::wait_for(&stream, &at),
            recorded => {
                // Work submitted before the capture cannot be in the graph.
                let isolated = |part: &mut capture::Position| {
                    part.capture.invalidate();
                    Err(CUresult::ERROR_STREAM_CAPTURE_ISOLATION)
                };
                stream.is_captured(isolated)?;
                let Recorded::At { context, mark } = recorded else { return Ok(()) };
                if context.device.ordinal == stream.context.device.ordinal {
                    stream.submit(StreamCommand::Wait(mark), None)?;
                    return Ok(());
                }
                // Two simulated GPUs have no common timeline: the caller waits instead of the stream.
                context.device.gpu.wait_for(mark).map_err(status_of)
            }
        }
    };

    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        on: Ptr<CUstream_st>, _pointer: CUdeviceptr, _len: usize, _flags: c_uint
    ) |null|
        = stream(on, null).map(drop);
    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz(on: Ptr<CUstream_st>, function: CUhostFn, data: Ptr<c_void>) |null|
        = call(on, null, Call::Function { function, data: data.address() });
    fn cuLaunchHostFunc_v2 / cuLaunchHostFunc_v2_ptsz(
        on: Ptr<CUstream_st>, function: CUhostFn, data: Ptr<c_void>, _sync_mode: c_uint
    ) |null|
        = call(on, null, Call::Function { function, data: data.address() });

    fn cuStreamAddCallback / cuStreamAddCallback_ptsz(
        on: Ptr<CUstream_st>, function: CUstreamCallback, data: Ptr<c_void>, _flags: c_uint
    ) |null| = {
        let stream = stream(on, null)?;
        driver()?.captures.forbid_stream(&stream)?;
        call(on, null, Call::Callback { function, stream: on.address(), data: data.address() })
    };
}

fn call(on: Ptr<CUstream_st>, null: Null, call: Call) -> Status {
    let is_null = match call {
        Call::Function { function, .. } => function.is_none(),
        Call::Callback { function, .. } => function.is_none(),
    };
    if is_null {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let stream = stream(on, null)?;
    if stream.is_captured(|part| part.add_node(&stream, Body::Host(call)))? {
        return Ok(());
    }
    host::launch(&stream, call)
}

fn event(handle: Ptr<CUevent_st>) -> Result<Arc<Event>, CUresult> {
    driver()?.events.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

pub(crate) fn cuEventCreate(handle: Ptr<CUevent>, flags: c_uint) -> Status {
    let context = current()?;
    if flags & !7 != 0 || (flags & CU_EVENT_INTERPROCESS != 0 && flags & CU_EVENT_DISABLE_TIMING == 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    handle.required()?;
    let word = match flags & CU_EVENT_DISABLE_TIMING {
        0 => Some(context.device.gpu.open_event().map_err(status_of)?),
        _ => None,
    };
    let event =
        driver()?.events.add(|handle| Event { handle, context, word, recorded: Mutex::new(Recorded::Never) });
    handle.write_handle(event.handle)
}

fn record(of: Ptr<CUevent_st>, on: Ptr<CUstream_st>, null: Null) -> Status {
    let (event, stream) = (event(of)?, stream(on, null)?);
    if event.context.device.ordinal != stream.context.device.ordinal {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let mut recorded = lock(&event.recorded);
    let captured = stream.is_captured(|part| {
        *recorded = Recorded::Captured(part.clone());
        Ok(())
    })?;
    if !captured {
        let mark = stream.submit(StreamCommand::Record(event.word), None)?;
        *recorded = Recorded::At { context: stream.context.clone(), mark };
    }
    Ok(())
}

with_twin! {
    fn cuEventRecord / cuEventRecord_ptsz(of: Ptr<CUevent_st>, on: Ptr<CUstream_st>) |null| = record(of, on, null);

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(
        of: Ptr<CUevent_st>, on: Ptr<CUstream_st>, flags: c_uint
    ) |null| = {
        if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        record(of, on, null)
    };
}

/// The last position that an event has recorded. A position in a capture is an error and invalidates the capture.
fn recorded(of: Ptr<CUevent_st>) -> Result<Recorded, CUresult> {
    let recorded = event(of)?.recorded();
    if let Recorded::Captured(at) = &recorded {
        at.capture.invalidate();
        return Err(CUresult::ERROR_CAPTURED_EVENT);
    }
    driver_for_unsafe_call()?;
    Ok(recorded)
}

pub(crate) fn cuEventQuery(of: Ptr<CUevent_st>) -> Status {
    match recorded(of)? {
        Recorded::At { context, mark } if !context.device.gpu.is_done(mark) => Err(CUresult::ERROR_NOT_READY),
        Recorded::At { context, .. } => context.healthy(),
        _ => Ok(()),
    }
}

pub(crate) fn cuEventSynchronize(of: Ptr<CUevent_st>) -> Status {
    match recorded(of)? {
        Recorded::At { context, mark } => {
            context.device.wait_for(mark)?;
            context.healthy()
        }
        _ => Ok(()),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the driver's result is a float of half a microsecond's resolution"
)]
pub(crate) fn cuEventElapsedTime_v2(out: Ptr<f32>, from: Ptr<CUevent_st>, to: Ptr<CUevent_st>) -> Status {
    let (from, to) = (event(from)?.time()?, event(to)?.time()?);
    out.write((to as f64 - from as f64) as f32 / 1e6)
}

functions! {
    fn cuStreamCreate(handle: Ptr<CUstream>, flags: c_uint) = cuStreamCreateWithPriority(handle, flags, 0);
    fn cuEventDestroy_v2(handle: Ptr<CUevent_st>)
        = driver()?.events.remove(handle.address()).map(drop).ok_or(CUresult::ERROR_INVALID_HANDLE);
}
