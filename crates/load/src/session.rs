//! A session: the context, module, streams and events of one process on one device.

use std::ffi::{CStr, c_void};
use std::{mem, ptr};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::{CUcontext, CUdevice, CUevent, CUfunction, CUmodule, CUstream};

use crate::driver::{Driver, Error, check, function};
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
    ///
    /// # Errors
    /// The driver's error, or the driver is missing.
    pub fn open(ordinal: i32) -> Result<Self, Error> {
        Self::with_driver(Driver::open()?, ordinal)
    }

    /// As [`Self::open`], with an open driver.
    ///
    /// # Errors
    /// The driver's error.
    pub fn with_driver(driver: Driver, ordinal: i32) -> Result<Self, Error> {
        let mut device: CUdevice = 0;
        let get = function!(driver, cuDeviceGet)?;
        // SAFETY: the driver writes one device ordinal to a local.
        check("cuDeviceGet", unsafe { get(&raw mut device, ordinal) })?;
        let name = driver.device_name(ordinal)?;
        let mut context: CUcontext = ptr::null_mut();
        let retain = function!(driver, cuDevicePrimaryCtxRetain)?;
        // SAFETY: the driver writes one handle to a local; `device` came from the driver.
        check("cuDevicePrimaryCtxRetain", unsafe { retain(&raw mut context, device) })?;
        let mut session = Self { driver, device, context, function: ptr::null_mut(), name };
        session.use_on_this_thread()?;
        session.function = session.load_kernel()?;
        Ok(session)
    }

    /// Makes the context current on the calling thread. Every thread calls this once before it uses the session.
    ///
    /// # Errors
    /// The driver's error.
    pub fn use_on_this_thread(&self) -> Result<(), Error> {
        let set = function!(self.driver, cuCtxSetCurrent)?;
        // SAFETY: the context is retained for as long as the session lives.
        check("cuCtxSetCurrent", unsafe { set(self.context) })
    }

    /// The device's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.name
    }

    /// Free and total device memory in bytes, as `cuMemGetInfo` reports it to this process.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        let (mut free, mut total) = (0_usize, 0_usize);
        let get = function!(self.driver, cuMemGetInfo_v2)?;
        // SAFETY: the driver writes two sizes to two locals.
        check("cuMemGetInfo", unsafe { get(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits for everything submitted in this context.
    ///
    /// # Errors
    /// The driver's error of this call or of an earlier launch.
    pub fn synchronize(&self) -> Result<(), Error> {
        let wait = function!(self.driver, cuCtxSynchronize)?;
        // SAFETY: it takes no arguments; a context is current on this thread.
        check("cuCtxSynchronize", unsafe { wait() })
    }

    /// Makes a stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stream(&self) -> Result<Stream<'_>, Error> {
        let mut handle: CUstream = ptr::null_mut();
        let create = function!(self.driver, cuStreamCreate)?;
        // SAFETY: the driver writes one handle to a local.
        check("cuStreamCreate", unsafe { create(&raw mut handle, STREAM_FLAGS) })?;
        Ok(Stream { session: self, handle })
    }

    /// The legacy default stream.
    #[must_use]
    pub fn default_stream(&self) -> Stream<'_> {
        Stream { session: self, handle: ptr::null_mut() }
    }

    /// Makes an event.
    ///
    /// # Errors
    /// The driver's error.
    pub fn event(&self) -> Result<Event<'_>, Error> {
        let mut handle: CUevent = ptr::null_mut();
        let create = function!(self.driver, cuEventCreate)?;
        // SAFETY: the driver writes one handle to a local.
        check("cuEventCreate", unsafe { create(&raw mut handle, EVENT_FLAGS) })?;
        Ok(Event { session: self, handle })
    }

    /// The session's driver.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    fn load_kernel(&self) -> Result<CUfunction, Error> {
        let mut image = kernel::module_for(&self.name).into_bytes();
        image.push(0);
        let mut module: CUmodule = ptr::null_mut();
        let load = function!(self.driver, cuModuleLoadData)?;
        // SAFETY: the image is text with a terminating zero byte, and outlives the call.
        check("cuModuleLoadData", unsafe { load(&raw mut module, image.as_ptr().cast()) })?;
        let name: &CStr = c"spin";
        let mut found: CUfunction = ptr::null_mut();
        let get = function!(self.driver, cuModuleGetFunction)?;
        // SAFETY: the module was just loaded and is never unloaded; the name is a C string.
        check("cuModuleGetFunction", unsafe { get(&raw mut found, module, name.as_ptr()) })?;
        Ok(found)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(release) = self.driver.api().cuDevicePrimaryCtxRelease_v2 {
            // SAFETY: retained once in `open`; streams, events and buffers borrow the session, so they were dropped before.
            let _ = unsafe { release(self.device) };
        }
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
    ///
    /// # Errors
    /// The driver's error.
    pub fn launch(&self, buffer: &DeviceBuffer<'_>, blocks: u32, iterations: u32) -> Result<(), Error> {
        let mut pointer = buffer.address();
        let mut words = u32::try_from(buffer.bytes() / mem::size_of::<u64>() as u64).unwrap_or(u32::MAX);
        let mut iterations = iterations;
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut pointer).cast(), (&raw mut words).cast(), (&raw mut iterations).cast()];
        let launch = function!(self.session.driver, cuLaunchKernel)?;
        // SAFETY: the function takes (u64, u32, u32), which is what the three pointers lead to, and the driver copies them
        // before it returns. The buffer has `words` words; the caller keeps it until it has waited for the stream.
        let status = unsafe {
            launch(
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
                ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", status)
    }

    /// Waits for everything submitted to this stream.
    ///
    /// # Errors
    /// The driver's error of this call or of an earlier launch.
    pub fn synchronize(&self) -> Result<(), Error> {
        let wait = function!(self.session.driver, cuStreamSynchronize)?;
        // SAFETY: the handle lives as long as `self`.
        check("cuStreamSynchronize", unsafe { wait(self.handle) })
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.session.driver.api().cuStreamDestroy_v2
            && !self.handle.is_null()
        {
            // SAFETY: created by this session and destroyed only here.
            let _ = unsafe { destroy(self.handle) };
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
    ///
    /// # Errors
    /// The driver's error.
    pub fn record(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let record = function!(self.session.driver, cuEventRecord)?;
        // SAFETY: both handles are alive.
        check("cuEventRecord", unsafe { record(self.handle, stream.handle) })
    }

    /// Whether the last record is reached.
    ///
    /// # Errors
    /// The driver's error of this call or of an earlier launch.
    pub fn is_reached(&self) -> Result<bool, Error> {
        let query = function!(self.session.driver, cuEventQuery)?;
        // SAFETY: the handle is alive.
        match unsafe { query(self.handle) } {
            CUresult::ERROR_NOT_READY => Ok(false),
            status => check("cuEventQuery", status).map(|()| true),
        }
    }

    /// Waits until the last record is reached.
    ///
    /// # Errors
    /// The driver's error of this call or of an earlier launch.
    pub fn wait(&self) -> Result<(), Error> {
        let wait = function!(self.session.driver, cuEventSynchronize)?;
        // SAFETY: the handle is alive.
        check("cuEventSynchronize", unsafe { wait(self.handle) })
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.session.driver.api().cuEventDestroy_v2 {
            // SAFETY: created by this session and destroyed only here.
            let _ = unsafe { destroy(self.handle) };
        }
    }
}
