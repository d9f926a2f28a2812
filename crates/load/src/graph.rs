//! A graph of one kernel, launched as a whole.

use std::ptr;

use sluice_driver_api::types::{CUgraph, CUgraphExec};

use crate::driver::{Error, call};
use crate::memory::DeviceBuffer;
use crate::session::{Session, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// An executable graph. Like the session's kernel it exists until the process ends.
#[derive(Debug)]
pub struct Graph<'s> {
    session: &'s Session,
    exec: CUgraphExec,
}

impl<'s> Graph<'s> {
    /// Captures a graph of one launch of `spin` over `buffer` ([`Stream::launch`]). The caller keeps `buffer` as long as the graph is
    /// launched, and submits nothing else to `stream` during the capture.
    pub fn of_a_kernel(
        session: &'s Session,
        stream: &Stream<'_>,
        buffer: &DeviceBuffer<'_>,
        (blocks, iterations): (u32, u32),
    ) -> Result<Self, Error> {
        let (mut graph, mut exec): (CUgraph, CUgraphExec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream lives as long as its borrow.
        unsafe { call!(session.driver(), cuStreamBeginCapture_v2(stream.handle(), RELAXED))? };
        let launched = stream.launch(buffer, blocks, iterations);
        // SAFETY: as above; the driver writes one handle to a local.
        unsafe { call!(session.driver(), cuStreamEndCapture(stream.handle(), &raw mut graph))? };
        launched?;
        // SAFETY: the graph was captured just above; the driver writes one handle to a local.
        unsafe { call!(session.driver(), cuGraphInstantiateWithFlags(&raw mut exec, graph, 0))? };
        Ok(Self { session, exec })
    }

    /// Launches the graph.
    pub fn launch(&self, stream: &Stream<'_>) -> Result<(), Error> {
        // SAFETY: the graph is never destroyed, and the stream lives as long as its borrow.
        unsafe { call!(self.session.driver(), cuGraphLaunch(self.exec, stream.handle())) }
    }
}
