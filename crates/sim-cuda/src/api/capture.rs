//! Stream capture.

pub(crate) use super::stream::*;

use super::with_twin;
use crate::border::{Ptr, Status};
use crate::state::capture::{Mode, exchange_mode};
use crate::state::driver::driver;
use crate::state::graph::GraphObject;
use crate::state::lock;
use crate::state::stream::{Null, stream};
use sluice_driver_api::types::*;
use std::sync::Mutex;

fn begin(on: Ptr<CUstream_st>, null: Null, mode: CUstreamCaptureMode) -> Status {
    driver()?.captures.begin(&*stream(on, null)?, Mode::parse(mode)?)
}

/// Status and id of the capture that a stream takes part in.
fn info(on: Ptr<CUstream_st>, null: Null, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>) -> Status {
    let driver = driver()?;
    let stream = stream(on, null)?;
    if stream.kind == sluice_sim::engine::StreamKind::Legacy {
        driver.captures.ask_legacy(&stream.context)?;
    }
    match lock(&stream.capture).as_ref() {
        None => status.write(CU_STREAM_CAPTURE_STATUS_NONE),
        Some(part) => {
            let invalid = lock(&part.tips.capture.graph).invalid;
            id.write_if_wanted(part.tips.capture.id);
            status.write(if invalid {
                CU_STREAM_CAPTURE_STATUS_INVALIDATED
            } else {
                CU_STREAM_CAPTURE_STATUS_ACTIVE
            })
        }
    }
}

with_twin! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(on: Ptr<CUstream_st>) |null| {
        begin(on, null, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(on: Ptr<CUstream_st>, mode: CUstreamCaptureMode) |null| {
        begin(on, null, mode)
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(on: Ptr<CUstream_st>, graph: Ptr<CUgraph>) |null| {
        let driver = driver()?;
        graph.write_if_wanted(std::ptr::null_mut());
        let nodes = driver.captures.end(&*stream(on, null)?)?;
        let made = driver.graphs.add(|handle| GraphObject { handle, nodes: Mutex::new(nodes) });
        graph.write_handle(made.handle)
    }

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>) |null| {
        info(on, null, status, Ptr::null())
    }

    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>
    ) |null| {
        info(on, null, status, id)
    }

    /// The graph and nodes of a capture in progress have no handles, so no call returns them.
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>, graph: Ptr<CUgraph>,
        dependencies: Ptr<*const CUgraphNode>, count: Ptr<usize>
    ) |null| {
        graph.write_if_wanted(std::ptr::null_mut());
        dependencies.write_if_wanted(std::ptr::null());
        count.write_if_wanted(0);
        info(on, null, status, id)
    }

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>, graph: Ptr<CUgraph>,
        dependencies: Ptr<*const CUgraphNode>, edges: Ptr<*const CUgraphEdgeData>, count: Ptr<usize>
    ) |null| {
        graph.write_if_wanted(std::ptr::null_mut());
        dependencies.write_if_wanted(std::ptr::null());
        edges.write_if_wanted(std::ptr::null());
        count.write_if_wanted(0);
        info(on, null, status, id)
    }
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: Ptr<CUstreamCaptureMode>) -> Status {
    let next = Mode::parse(mode.read()?)?;
    mode.write(exchange_mode(next).number())
}
