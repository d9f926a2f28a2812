//! Graphs.

pub(crate) use super::launch::*;
// Functions that differ in name only.
pub(crate) use self::cuGraphInstantiate_v2 as cuGraphInstantiate;

use super::with_twin;
use crate::border::{Ptr, Status};
use crate::state::context::current;
use crate::state::driver::driver;
use crate::state::graph::{Exec, GraphObject};
use crate::state::lock;
use crate::state::stream::{Null, Stream, stream};
use sluice_driver_api::types::*;
use std::sync::{Arc, Mutex};

fn graph(handle: Ptr<CUgraph_st>) -> Result<Arc<GraphObject>, CUresult> {
    driver()?.graphs.get(handle.address()).ok_or(CUresult::ERROR_INVALID_VALUE)
}

fn exec(handle: Ptr<CUgraphExec_st>) -> Result<Arc<Exec>, CUresult> {
    driver()?.execs.get(handle.address()).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

fn instantiate(handle: Ptr<CUgraphExec>, of: Ptr<CUgraph_st>) -> Status {
    let context = current()?;
    let nodes = lock(&graph(of)?.nodes).clone();
    let mut made = Exec::new(0, &context, nodes)?;
    let exec = driver()?.execs.add(|handle| {
        made.handle = handle;
        made
    });
    handle.write_handle(exec.handle)
}

pub(crate) fn cuGraphCreate(handle: Ptr<CUgraph>, _flags: c_uint) -> Status {
    let made = driver()?.graphs.add(|handle| GraphObject { handle, nodes: Mutex::new(Vec::new()) });
    handle.write_handle(made.handle)
}

pub(crate) fn cuGraphClone(handle: Ptr<CUgraph>, of: Ptr<CUgraph_st>) -> Status {
    let nodes = lock(&graph(of)?.nodes).clone();
    let made = driver()?.graphs.add(|handle| GraphObject { handle, nodes: Mutex::new(nodes) });
    handle.write_handle(made.handle)
}

pub(crate) fn cuGraphDestroy(of: Ptr<CUgraph_st>) -> Status {
    driver()?.graphs.remove(of.address()).map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
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
    instantiate(handle, of)
}

pub(crate) fn cuGraphInstantiateWithFlags(
    handle: Ptr<CUgraphExec>,
    of: Ptr<CUgraph_st>,
    _flags: u64,
) -> Status {
    instantiate(handle, of)
}

pub(crate) fn cuGraphExecDestroy(of: Ptr<CUgraphExec_st>) -> Status {
    driver()?.execs.remove(of.address()).map(drop).ok_or(CUresult::ERROR_INVALID_HANDLE)
}

fn launch(exec: &Exec, stream: &Arc<Stream>) -> Status {
    if stream.is_captured(|part| part.add_graph(&exec.nodes))? {
        return Ok(());
    }
    exec.launch(stream)
}

with_twin! {
    fn cuGraphLaunch / cuGraphLaunch_ptsz(of: Ptr<CUgraphExec_st>, on: Ptr<CUstream_st>) |null| {
        launch(&*exec(of)?, &stream(on, null)?)
    }

    fn cuGraphUpload / cuGraphUpload_ptsz(of: Ptr<CUgraphExec_st>, on: Ptr<CUstream_st>) |null| {
        exec(of)?;
        stream(on, null).map(drop)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        handle: Ptr<CUgraphExec>, of: Ptr<CUgraph_st>, _params: Ptr<CUDA_GRAPH_INSTANTIATE_PARAMS>
    ) |_null| {
        instantiate(handle, of)
    }
}
