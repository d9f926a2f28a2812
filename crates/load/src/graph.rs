//! A graph of one kernel, launched as a whole.

use std::ptr;

use sluice_driver_api::types::{CUgraph, CUgraphExec};

use crate::driver::{Error, check, function};
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
    ///
    /// # Errors
    /// The driver's error.
    pub fn of_a_kernel(
        session: &'s Session,
        stream: &Stream<'_>,
        buffer: &DeviceBuffer<'_>,
        (blocks, iterations): (u32, u32),
    ) -> Result<Self, Error> {
        let begin = function!(session.driver(), cuStreamBeginCapture_v2)?;
        let end = function!(session.driver(), cuStreamEndCapture)?;
        let instantiate = function!(session.driver(), cuGraphInstantiateWithFlags)?;
        let (mut graph, mut exec): (CUgraph, CUgraphExec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream lives as long as its borrow.
        check("cuStreamBeginCapture", unsafe { begin(stream.handle(), RELAXED) })?;
        let launched = stream.launch(buffer, blocks, iterations);
        // SAFETY: as above; the driver writes one handle to a local.
        check("cuStreamEndCapture", unsafe { end(stream.handle(), &raw mut graph) })?;
        launched?;
        // SAFETY: the graph was captured just above; the driver writes one handle to a local.
        check("cuGraphInstantiate", unsafe { instantiate(&raw mut exec, graph, 0) })?;
        Ok(Self { session, exec })
    }

    /// Launches the graph.
    ///
    /// # Errors
    /// The driver's error.
    pub fn launch(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let launch = function!(self.session.driver(), cuGraphLaunch)?;
        // SAFETY: the graph is never destroyed, and the stream lives as long as its borrow.
        check("cuGraphLaunch", unsafe { launch(self.exec, stream.handle()) })
    }
}
