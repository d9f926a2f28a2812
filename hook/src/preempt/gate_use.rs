//! Whether the GPU can stop a stream at a gate.

use std::ffi::CStr;

use sluice_preempt::driver::Driver;
use sluice_preempt::queue::Queue;

use super::engine::HookEngine;

/// Whether the stream is to get a gate cell now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateUse {
    Probe,
    Prepare,
}

/// Whether a stream can have gates; the reason if not.
pub(super) fn can_stop_on_gpu(
    engine: &HookEngine,
    queue: &Queue,
    gate_use: GateUse,
) -> Result<(), &'static CStr> {
    let stream = queue.stream();
    if stream.is_legacy() {
        return Err(c"all blocking streams wait for the legacy default stream on the GPU");
    }
    let gates = &engine.driver().gates;
    let possible = engine.with_stream(queue, || {
        let relaxed = engine.driver().exchange_capture_relaxed(true);
        let possible = match gate_use {
            GateUse::Probe => gates.probe(stream.context),
            GateUse::Prepare => gates.prepare(stream),
        };
        engine.driver().exchange_capture_relaxed(relaxed);
        possible
    });
    possible.unwrap_or(Err(c"the stream is being destroyed"))
}
