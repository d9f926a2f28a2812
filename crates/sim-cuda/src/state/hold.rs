//! The kernel that holds the GPU until a word has come to a value.

use super::driver::driver;
use super::host;
use super::stream::Stream;
use crate::border::{Span, Status};
use sluice_driver_api::CUresult;
use sluice_sim::client::StreamCommand;
use sluice_sim::engine::Work;
use sluice_sim::module::Launch;
use sluice_sim::params;
use std::sync::Arc;

/// What the kernel writes, in bytes from its word on: the value that released it, and before that when it began and ended by
/// the GPU's clock.
const TICKET: usize = 64;
const BEGAN: usize = 72;
const ENDED: usize = 80;

/// Launches it.
pub(crate) fn launch(on: &Arc<Stream>, launch: &Launch, value: u32, name: usize) -> Status {
    on.is_captured(|part| {
        part.tips.capture.invalidate();
        Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
    })?;
    let context = on.context.clone();
    let device = &context.device;
    let memory = &driver()?.memory;
    let address = usize::try_from(launch.ptr).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    let found = memory.span(address, 4).filter(|_| address.is_multiple_of(4));
    let Some(word) = found else {
        let failing = context.clone();
        let work = Work::Kernel { ns: params::MIN_KERNEL_NS, sms: 1, name };
        let effect = move || failing.fail(CUresult::ERROR_ILLEGAL_ADDRESS);
        return on.submit(StreamCommand::Work(work), Some(Box::new(effect))).map(drop);
    };
    let events = [device.gpu.open_event(), device.gpu.open_event()];
    let [Ok(begin), Ok(end)] = events else { return Err(CUresult::ERROR_OUT_OF_MEMORY) };
    let coming = device.words.watch(&device.gpu, word);
    let times = [begin as u64, end as u64];
    let work = Work::Hold { address: launch.ptr, value, timeout_ns: launch.ns, name, times };
    let gpu = device.gpu.clone();
    let effect = move || {
        let (began, ended) = (gpu.event_time(begin), gpu.event_time(end));
        gpu.close_event(begin);
        gpu.close_event(end);
        // A launch without room for the notes is another kernel of that name, and writes none.
        let Ok(memory) = driver().map(|driver| &driver.memory) else { return };
        if memory.span(address, ENDED + 8).is_none_or(|span| memory.is_read_only(span)) {
            return;
        }
        Span::found(address + BEGAN, 8).store(began);
        // The word's end is written down only where the word was the reason; an older one is of another kernel.
        if ended >= began {
            Span::found(address + ENDED, 8).store(ended);
            Span::found(address + TICKET, 4).store(value.into());
        }
    };
    let mark = on.submit(StreamCommand::Work(work), Some(Box::new(effect)))?;
    coming.submitted(mark, &context);
    host::apply_effects_at(on, mark);
    Ok(())
}
