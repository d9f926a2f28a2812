//! Captured graphs of kernels.

use std::ptr;
use std::time::Duration;

use sluice_driver_api::types::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUdeviceptr, CUgraph, CUgraphExec};

use super::random::Random;
use crate::driver::{Error, call};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::session::{Session, Stream};

/// Bytes of a captured allocation. The driver keeps them for ever, so few graphs have one.
const BYTES: usize = 2 << 20;
/// One graph in this many allocates memory.
const ALLOCATES_ONCE_IN: u64 = 16;

/// An executable graph of some launches of the session's kernel over one buffer.
#[derive(Debug)]
pub(crate) struct CapturedGraph<'s> {
    session: &'s Session,
    graph: CUgraph,
    exec: CUgraphExec,
    kernels: u64,
}

impl<'s> CapturedGraph<'s> {
    /// Captures one to four launches, and now and then an allocation that the graph frees if it may. Nothing else uses the stream meanwhile, and no
    /// thread waits for the whole context.
    pub(crate) fn capture(
        session: &'s Session,
        stream: &Stream<'_>,
        buffer: &DeviceBuffer<'_>,
        may_allocate: bool,
        random: &mut Random,
    ) -> Result<Self, Error> {
        let driver = session.driver();
        let mut made =
            Self { session, graph: ptr::null_mut(), exec: ptr::null_mut(), kernels: 1 + random.below(4) };
        // SAFETY: the stream lives as long as its borrow.
        unsafe {
            call!(driver, cuStreamBeginCapture_v2(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))?
        };
        let mut memory: CUdeviceptr = 0;
        if may_allocate && random.once_in(ALLOCATES_ONCE_IN) {
            // SAFETY: the driver writes one address to a local.
            unsafe { call!(driver, cuMemAllocAsync(&raw mut memory, BYTES, stream.handle()))? };
        }
        for _ in 0..made.kernels {
            stream.launch(buffer, 8, kernel::iterations(Duration::from_micros(random.below(300))))?;
        }
        if memory != 0 {
            // SAFETY: allocated in this capture, and freed only here.
            unsafe { call!(driver, cuMemFreeAsync(memory, stream.handle()))? };
        }
        // SAFETY: this thread began the capture; the driver writes one handle.
        unsafe { call!(driver, cuStreamEndCapture(stream.handle(), &raw mut made.graph))? };
        // SAFETY: the graph was captured just above; the driver writes one handle.
        unsafe { call!(driver, cuGraphInstantiateWithFlags(&raw mut made.exec, made.graph, 0))? };
        Ok(made)
    }

    /// Launches it once to three times. Returns the number of kernels.
    pub(crate) fn launch(&self, stream: &Stream<'_>, random: &mut Random) -> Result<u64, Error> {
        let (driver, times) = (self.session.driver(), 1 + random.below(3));
        if random.once_in(4) {
            // SAFETY: graph and stream are alive.
            unsafe { call!(driver, cuGraphUpload(self.exec, stream.handle()))? };
        }
        for _ in 0..times {
            // SAFETY: as above; the buffer lives as long as the thread, which destroys its graph before.
            unsafe { call!(driver, cuGraphLaunch(self.exec, stream.handle()))? };
        }
        Ok(times * self.kernels)
    }

    /// Destroys it. The caller has waited for its launches.
    pub(crate) fn destroy(self) -> Result<(), Error> {
        // SAFETY: instantiated by this value and destroyed only here.
        unsafe { call!(self.session.driver(), cuGraphExecDestroy(self.exec))? };
        // SAFETY: captured by this value and destroyed only here.
        unsafe { call!(self.session.driver(), cuGraphDestroy(self.graph)) }
    }
}
