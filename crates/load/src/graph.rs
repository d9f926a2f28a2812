//! A graph of one kernel, launched as a whole.

use std::ptr;

use sluice_driver_api::types::{CUgraph, CUgraphExec};

use crate::driver::{Error, check, function};
use crate::memory::DeviceBuffer;
use crate::session::{Session, Stream};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// An executable graph. It lives until the process ends, as the session's kernel does.
#[derive(Debug)]
pub struct Graph<'s> {
    session: &'s Session,
    exec: CUgraphExec,
}

impl<'s> Graph<'s> {
    /// Of one launch of `spin` over `buffer`, which the caller keeps for as long as the graph is launched; see [`Stream::launch`]. Nothing
    /// else may be given to `stream` meanwhile.
    ///
    /// # Errors
    /// Those of the driver.
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

    /// Launches it.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn launch(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let launch = function!(self.session.driver(), cuGraphLaunch)?;
        // SAFETY: the graph is never destroyed, and the stream lives as long as its borrow.
        check("cuGraphLaunch", unsafe { launch(self.exec, stream.handle()) })
    }
}
