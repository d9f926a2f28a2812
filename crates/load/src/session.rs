//! A session: the context, module, streams and events of one process on one device.

use std::ffi::c_void;
use std::{mem, ptr};

use sluice_driver_api::types::{CUcontext, CUdevice, CUevent, CUfunction, CUmodule, CUstream};

use crate::driver::{Driver, Error, call};
use crate::kernel;
use crate::memory::DeviceBuffer;

/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: waiting must not occupy a core that another process needs.
const EVENT_FLAGS: u32 = 1 | 2;
/// `CU_STREAM_NON_BLOCKING`.
const STREAM_FLAGS: u32 = 1;

/// The primary context of a device with the `spin` kernel loaded.
#[derive(Debug)]
pub struct Session {
    driver: Driver,
    device: CUdevice,
    context: CUcontext,
    function: CUfunction,
    name: String,
}

// SAFETY: the fields are handles that the driver API lets any thread use, and nothing changes them after `open`.
unsafe impl Send for Session {}
// SAFETY: as above; the driver does its own locking.
unsafe impl Sync for Session {}

impl Session {
    /// Retains the primary context of device `ordinal`, makes it current on this thread and loads the kernel.
    pub fn open(ordinal: i32) -> Result<Self, Error> {
        Self::with_driver(Driver::open()?, ordinal)
    }

    /// As [`Self::open`], with an open driver.
    pub fn with_driver(driver: Driver, ordinal: i32) -> Result<Self, Error> {
        let device = driver.device(ordinal)?;
        let name = driver.device_name(ordinal)?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the driver writes one handle to a local; `device` came from the driver.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device))? };
        let mut session = Self { driver, device, context, function: ptr::null_mut(), name };
        session.use_on_this_thread()?;
        session.function = session.load_kernel()?;
        Ok(session)
    }

    /// Makes the context current on the calling thread. Every thread calls this once before it uses the session.
    pub fn use_on_this_thread(&self) -> Result<(), Error> {
        // SAFETY: the context is retained for as long as the session lives.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.context)) }
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        &self.name
    }

    /// Free and total device memory in bytes, as `cuMemGetInfo` reports it to this process.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the driver writes two sizes to two locals.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total))? };
        Ok((free as u64, total as u64))
    }

    /// Waits for everything submitted in this context.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: it takes no arguments; a context is current on this thread.
        unsafe { call!(self.driver, cuCtxSynchronize()) }
    }

    /// Makes a stream.
    pub fn stream(&self) -> Result<Stream<'_>, Error> {
        let mut handle: CUstream = ptr::null_mut();
        // SAFETY: the driver writes one handle to a local.
        unsafe { call!(self.driver, cuStreamCreate(&raw mut handle, STREAM_FLAGS))? };
        Ok(Stream { session: self, handle })
    }

    /// The legacy default stream.
    pub fn default_stream(&self) -> Stream<'_> {
        Stream { session: self, handle: ptr::null_mut() }
    }

    /// Makes an event.
    pub fn event(&self) -> Result<Event<'_>, Error> {
        let mut handle: CUevent = ptr::null_mut();
        // SAFETY: the driver writes one handle to a local.
        unsafe { call!(self.driver, cuEventCreate(&raw mut handle, EVENT_FLAGS))? };
        Ok(Event { session: self, handle })
    }

    /// The session's driver.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device
    }

    fn load_kernel(&self) -> Result<CUfunction, Error> {
        let mut image = kernel::module_for(&self.name).into_bytes();
        image.push(0);
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the image is text with a terminating zero byte, and outlives the call.
        unsafe { call!(self.driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))? };
        let mut found: CUfunction = ptr::null_mut();
        // SAFETY: the module was just loaded and is never unloaded; the name is a C string.
        unsafe { call!(self.driver, cuModuleGetFunction(&raw mut found, module, c"spin".as_ptr()))? };
        Ok(found)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; streams, events and buffers borrow the session, so they were dropped before.
        let _ = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

/// A stream of a session.
#[derive(Debug)]
pub struct Stream<'s> {
    session: &'s Session,
    handle: CUstream,
}

impl Stream<'_> {
    /// Launches `spin` over `buffer` with this many blocks of [`kernel::BLOCK`] threads.
    pub fn launch(&self, buffer: &DeviceBuffer<'_>, blocks: u32, iterations: u32) -> Result<(), Error> {
        self.launch_through(&self.session.driver, buffer, blocks, iterations)
    }

    /// As [`Self::launch`], by the launch function of another library for the same driver, for example without the hook.
    pub fn launch_through(
        &self,
        driver: &Driver,
        buffer: &DeviceBuffer<'_>,
        blocks: u32,
        iterations: u32,
    ) -> Result<(), Error> {
        let mut pointer = buffer.address();
        let mut words = u32::try_from(buffer.bytes() / mem::size_of::<u64>() as u64).unwrap_or(u32::MAX);
        let mut iterations = iterations;
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut pointer).cast(), (&raw mut words).cast(), (&raw mut iterations).cast()];
        // SAFETY: the function takes (u64, u32, u32), which is what the three pointers lead to, and the driver copies them
        // before it returns. The buffer has `words` words; the caller keeps it until it has waited for the stream.
        unsafe {
            call!(
                driver,
                cuLaunchKernel(
                    self.session.function,
                    blocks,
                    1,
                    1,
                    kernel::BLOCK,
                    1,
                    1,
                    0,
                    self.handle,
                    parameters.as_mut_ptr(),
                    ptr::null_mut()
                )
            )
        }
    }

    /// Waits for everything submitted to this stream.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the handle lives as long as `self`.
        unsafe { call!(self.session.driver, cuStreamSynchronize(self.handle)) }
    }

    /// Whether everything submitted to this stream is done.
    pub fn is_idle(&self) -> Result<bool, Error> {
        // SAFETY: the handle lives as long as `self`.
        match unsafe { call!(self.session.driver, cuStreamQuery(self.handle)) } {
            Err(error) if error.is_not_ready() => Ok(false),
            other => other.map(|()| true),
        }
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: created by this session and destroyed only here.
            let _ = unsafe { call!(self.session.driver, cuStreamDestroy_v2(self.handle)) };
        }
    }
}

/// An event of a session, without timing.
#[derive(Debug)]
pub struct Event<'s> {
    session: &'s Session,
    handle: CUevent,
}

impl Event<'_> {
    /// Records it behind everything in `stream`.
    pub fn record(&self, stream: &Stream<'_>) -> Result<(), Error> {
        // SAFETY: both handles are alive.
        unsafe { call!(self.session.driver, cuEventRecord(self.handle, stream.handle)) }
    }

    /// Whether the last record is reached.
    pub fn is_reached(&self) -> Result<bool, Error> {
        // SAFETY: the handle is alive.
        match unsafe { call!(self.session.driver, cuEventQuery(self.handle)) } {
            Err(error) if error.is_not_ready() => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Lets the later work of `stream` wait until the last record is reached.
    pub fn hold_back(&self, stream: &Stream<'_>) -> Result<(), Error> {
        // SAFETY: both handles are alive; the flags must be zero.
        unsafe { call!(self.session.driver, cuStreamWaitEvent(stream.handle, self.handle, 0)) }
    }

    /// Waits until the last record is reached.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the handle is alive.
        unsafe { call!(self.session.driver, cuEventSynchronize(self.handle)) }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: created by this session and destroyed only here.
        let _ = unsafe { call!(self.session.driver, cuEventDestroy_v2(self.handle)) };
    }
}
