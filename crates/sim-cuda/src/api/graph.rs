//! Graphs and stream capture.

pub(crate) use super::launch::*;
// Functions that differ in name only.
pub(crate) use self::cuGraphInstantiate_v2 as cuGraphInstantiate;

use super::{functions, with_twin};
use crate::border::{Ptr, Status};
use crate::state::capture::{Mode, exchange_mode};
use crate::state::context::current;
use crate::state::driver::driver;
use crate::state::graph::{Body, Exec, GraphNode, GraphObject};
use crate::state::lock;
use crate::state::memory::Origin;
use crate::state::stream::{Effect, Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::engine::Work;
use std::sync::{Arc, Mutex};

fn graph(handle: Ptr<CUgraph_st>) -> Result<Arc<GraphObject>, CUresult> {
    driver()?.graphs.get(handle.address()).ok_or(CUresult::ERROR_INVALID_VALUE)
}

fn exec(handle: Ptr<CUgraphExec_st>) -> Result<Arc<Exec>, CUresult> {
    driver()?.execs.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

fn add_graph(out: Ptr<CUgraph>, nodes: Vec<GraphNode>) -> Status {
    out.write_handle(driver()?.graphs.add(|handle| GraphObject { handle, nodes: Mutex::new(nodes) }).handle)
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

/// Kernels of the simulated GPU have no code that could launch a graph. So a graph that the device may launch is one that launches itself.
fn instantiate(handle: Ptr<CUgraphExec>, of: Ptr<CUgraph_st>, flags: u64) -> Status {
    let context = current()?;
    let nodes = lock(&graph(of)?.nodes).clone();
    let relaunches = flags & DEVICE_LAUNCH != 0;
    if relaunches && nodes.iter().any(|node| matches!(node.body, Body::Host(_))) {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let mut made = Exec::new(0, &context, nodes, relaunches)?;
    let exec = driver()?.execs.add(|handle| {
        made.handle = handle;
        made
    });
    handle.write_handle(exec.handle)
}

/// Adds a node that allocates memory. It has no handle that another call takes, so it depends on no node.
fn add_allocation(
    node: Ptr<CUgraphNode>,
    of: Ptr<CUgraph_st>,
    dependencies: usize,
    asked: CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<CUDA_MEM_ALLOC_NODE_PARAMS, CUresult> {
    let driver = driver()?;
    let context = current()?;
    if dependencies != 0
        || super::pool::device_of(asked.poolProps.location)?.ordinal != context.device.ordinal
    {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let graph = graph(of)?;
    let address = driver.memory.allocate(&context, asked.bytesize, Origin::Graph, 0)?;
    let back: Effect = Arc::new(move || driver.memory.back_graph_memory(address));
    let body = Body::Work { work: Work::Empty, effect: Some(back) };
    lock(&graph.nodes).push(GraphNode { body, dependencies: Vec::new() });
    node.write_if_wanted(std::ptr::null_mut());
    Ok(CUDA_MEM_ALLOC_NODE_PARAMS { dptr: address as u64, ..asked })
}

pub(crate) fn cuGraphAddMemAllocNode(
    node: Ptr<CUgraphNode>,
    of: Ptr<CUgraph_st>,
    _dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Status {
    params.write(add_allocation(node, of, count, params.read()?)?)
}

/// Adds a node that allocates memory, and no other.
pub(crate) fn cuGraphAddNode(
    node: Ptr<CUgraphNode>,
    of: Ptr<CUgraph_st>,
    _dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUgraphNodeParams>,
) -> Status {
    let asked = params.read()?;
    if asked.kind != CU_GRAPH_NODE_TYPE_MEM_ALLOC {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    params.write(CUgraphNodeParams { alloc: add_allocation(node, of, count, asked.alloc)?, ..asked })
}

/// Nodes have no handles of their own: only their number can be queried.
pub(crate) fn cuGraphGetNodes(of: Ptr<CUgraph_st>, nodes: Ptr<CUgraphNode>, count: Ptr<usize>) -> Status {
    if !nodes.is_null() {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    count.write(lock(&graph(of)?.nodes).len())
}

pub(crate) fn cuGraphInstantiate_v2(
    handle: Ptr<CUgraphExec>,
    of: Ptr<CUgraph_st>,
    _error_node: Ptr<CUgraphNode>,
    _log: Ptr<c_char>,
    _log_len: usize,
) -> Status {
    instantiate(handle, of, 0)
}

fn launch(exec: &Exec, stream: &Arc<Stream>) -> Status {
    if stream.is_captured(|part| part.add_graph(&exec.nodes))? {
        return Ok(());
    }
    exec.launch(stream)
}

with_twin! {
    fn cuGraphLaunch / cuGraphLaunch_ptsz(of: Ptr<CUgraphExec_st>, on: Ptr<CUstream_st>) |null|
        = launch(&*exec(of)?, &stream(on, null)?);

    fn cuGraphUpload / cuGraphUpload_ptsz(of: Ptr<CUgraphExec_st>, on: Ptr<CUstream_st>) |null| = {
        exec(of)?;
        stream(on, null).map(drop)
    };

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        handle: Ptr<CUgraphExec>, of: Ptr<CUgraph_st>, _params: Ptr<CUDA_GRAPH_INSTANTIATE_PARAMS>
    ) |_null|
        = instantiate(handle, of, 0);
}

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
            let invalid = lock(&part.capture.graph).invalid;
            id.write_if_wanted(part.capture.id);
            status.write(if invalid {
                CU_STREAM_CAPTURE_STATUS_INVALIDATED
            } else {
                CU_STREAM_CAPTURE_STATUS_ACTIVE
            })
        }
    }
}

with_twin! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(on: Ptr<CUstream_st>) |null|
        = begin(on, null, CU_STREAM_CAPTURE_MODE_GLOBAL);
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(on: Ptr<CUstream_st>, mode: CUstreamCaptureMode) |null|
        = begin(on, null, mode);

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(on: Ptr<CUstream_st>, graph: Ptr<CUgraph>) |null| = {
        let driver = driver()?;
        graph.write_if_wanted(std::ptr::null_mut());
        let nodes = driver.captures.end(&*stream(on, null)?)?;
        add_graph(graph, nodes)
    };

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>) |null|
        = info(on, null, status, Ptr::null());
    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>
    ) |null|
        = info(on, null, status, id);

    /// The graph and nodes of a capture in progress have no handles, so no call returns them.
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>, graph: Ptr<CUgraph>,
        dependencies: Ptr<*const CUgraphNode>, count: Ptr<usize>
    ) |null| = {
        graph.write_if_wanted(std::ptr::null_mut());
        dependencies.write_if_wanted(std::ptr::null());
        count.write_if_wanted(0);
        info(on, null, status, id)
    };

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        on: Ptr<CUstream_st>, status: Ptr<CUstreamCaptureStatus>, id: Ptr<u64>, graph: Ptr<CUgraph>,
        dependencies: Ptr<*const CUgraphNode>, edges: Ptr<*const CUgraphEdgeData>, count: Ptr<usize>
    ) |null| = {
        graph.write_if_wanted(std::ptr::null_mut());
        dependencies.write_if_wanted(std::ptr::null());
        edges.write_if_wanted(std::ptr::null());
        count.write_if_wanted(0);
        info(on, null, status, id)
    };
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: Ptr<CUstreamCaptureMode>) -> Status {
    let next = Mode::parse(mode.read()?)?;
    mode.write(exchange_mode(next) as u32)
}

functions! {
    fn cuGraphCreate(handle: Ptr<CUgraph>, _flags: c_uint) = add_graph(handle, Vec::new());
    fn cuGraphClone(handle: Ptr<CUgraph>, of: Ptr<CUgraph_st>) = add_graph(handle, lock(&graph(of)?.nodes).clone());
    fn cuGraphDestroy(of: Ptr<CUgraph_st>)
        = driver()?.graphs.remove(of.address()).map(drop).ok_or(CUresult::ERROR_INVALID_VALUE);
    fn cuGraphInstantiateWithFlags(handle: Ptr<CUgraphExec>, of: Ptr<CUgraph_st>, flags: u64)
        = instantiate(handle, of, flags);
    fn cuGraphExecDestroy(of: Ptr<CUgraphExec_st>)
        = driver()?.execs.remove(of.address()).map(drop).ok_or(CUresult::ERROR_INVALID_HANDLE);
}
