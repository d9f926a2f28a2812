//! Events.

pub(crate) use super::capture::*;
// Functions that differ in name only.
pub(crate) use self::{cuEventDestroy_v2 as cuEventDestroy, cuEventElapsedTime_v2 as cuEventElapsedTime};

use super::with_twin;
use crate::border::{Ptr, Status};
use crate::state::context::current;
use crate::state::driver::driver;
use crate::state::event::{Event, Recorded};
use crate::state::stream::{Null, stream};
use crate::state::{lock, status_of};
use sluice_driver_api::types::*;
use sluice_sim::client::StreamCommand;
use std::sync::{Arc, Mutex};

fn event(handle: Ptr<CUevent_st>) -> Result<Arc<Event>, CUresult> {
    driver()?.events.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

pub(crate) fn cuEventCreate(handle: Ptr<CUevent>, flags: c_uint) -> Status {
    let context = current()?;
    if flags & !7 != 0 || (flags & CU_EVENT_INTERPROCESS != 0 && flags & CU_EVENT_DISABLE_TIMING == 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let word = match flags & CU_EVENT_DISABLE_TIMING {
        0 => Some(context.device.gpu.open_event().map_err(|error| status_of(&error))?),
        _ => None,
    };
    let event =
        driver()?.events.add(|handle| Event { handle, context, word, recorded: Mutex::new(Recorded::Never) });
    handle.write_handle(event.handle)
}

pub(crate) fn cuEventDestroy_v2(handle: Ptr<CUevent_st>) -> Status {
    driver()?.events.remove(handle.address()).map(drop).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

fn record(of: Ptr<CUevent_st>, on: Ptr<CUstream_st>, null: Null) -> Status {
    let (event, stream) = (event(of)?, stream(on, null)?);
    if event.context.device.ordinal != stream.context.device.ordinal {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let mut recorded = lock(&event.recorded);
    let captured = stream.is_captured(|part| {
        *recorded = Recorded::Captured(part.tips.clone());
        Ok(())
    })?;
    if !captured {
        let mark = stream.submit(StreamCommand::Record(event.word), None)?;
        *recorded = Recorded::At { context: stream.context.clone(), mark };
    }
    Ok(())
}

with_twin! {
    fn cuEventRecord / cuEventRecord_ptsz(of: Ptr<CUevent_st>, on: Ptr<CUstream_st>) |null| {
        record(of, on, null)
    }

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(
        of: Ptr<CUevent_st>, on: Ptr<CUstream_st>, flags: c_uint
    ) |null| {
        if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        record(of, on, null)
    }
}

/// What an event has last recorded. If that belongs to a capture, the call is an error and ends the capture.
fn recorded(of: Ptr<CUevent_st>) -> Result<Recorded, CUresult> {
    let recorded = event(of)?.recorded();
    if let Recorded::Captured(tips) = &recorded {
        tips.capture.invalidate();
        return Err(CUresult::ERROR_CAPTURED_EVENT);
    }
    driver()?.captures.unsafe_call()?;
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
            context.device.gpu.wait_for(mark).map_err(|error| status_of(&error))?;
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
