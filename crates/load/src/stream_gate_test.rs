//! The test of stream gates: a stream waits for a word in host memory, and continues after the host has stored it. The evidence is the
//! effect, not the driver's attribute.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sluice_driver_api::types::CU_STREAM_WAIT_VALUE_GEQ;
use sluice_sys::page::SharedPage;

use crate::driver::{Error, call};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::session::{Session, Stream};

/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
const DEVICEMAP: u32 = 2;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Kernels that run on another stream while the gated stream should wait.
const OTHER_KERNELS: u32 = 8;
/// Time of each of them.
const KERNEL_TIME: Duration = Duration::from_micros(500);
/// Limit for a released stream to continue; it normally takes microseconds.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which the released stream is checked.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// The result of the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
pub enum StreamGateResult {
    /// The stream waited while another ran, and continued after the store.
    Works,
    /// The driver refused.
    Refused {
        /// The call, and its status.
        why: String,
    },
    /// The stream continued without the store.
    DoesNotWait,
    /// The stream still waited seconds after the store. Its resources cannot be released, so the process must be killed.
    NotReleased,
}

/// Tests a stream that waits for a word of a shared page.
pub fn run(session: &Session) -> StreamGateResult {
    let refused = |why: String| StreamGateResult::Refused { why };
    match SharedPage::create("sluice-gate") {
        Ok((page, _)) => attempt(session, &page).unwrap_or_else(|error| refused(error.to_string())),
        Err(error) => refused(format!("cannot make a page: {error}")),
    }
}

fn attempt(session: &Session, shared: &SharedPage) -> Result<StreamGateResult, Error> {
    let page = RegisteredPage::new(session, shared)?;
    let (gated, other) = (session.stream()?, session.stream()?);
    let buffer = DeviceBuffer::with_initial_words(session, 1024)?;
    page.wait(&gated)?;
    let reached = session.event()?;
    reached.record(&gated)?;
    for _ in 0..OTHER_KERNELS {
        other.launch(&buffer, 1, kernel::iterations(KERNEL_TIME))?;
    }
    other.synchronize()?;
    if reached.is_reached()? {
        return Ok(StreamGateResult::DoesNotWait);
    }
    let word: Option<&AtomicU64> = shared.words().first();
    word.into_iter().for_each(|word| word.store(1, Ordering::SeqCst));
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    while !reached.is_reached()? {
        if Instant::now() >= deadline {
            // Releasing these would wait for the stream without end.
            let _stuck = ManuallyDrop::new((reached, buffer, other, gated, page));
            return Ok(StreamGateResult::NotReleased);
        }
        thread::sleep(CHECK_EVERY);
    }
    Ok(StreamGateResult::Works)
}

/// A page registered with the driver, which the device can read.
struct RegisteredPage<'s> {
    session: &'s Session,
    page: *mut c_void,
    address: u64,
}

impl<'s> RegisteredPage<'s> {
    fn new(session: &'s Session, page: &SharedPage) -> Result<Self, Error> {
        let page: *mut c_void = std::ptr::from_ref(page.words()).cast_mut().cast();
        // SAFETY: a whole mapped page, which the caller keeps mapped until this value is dropped.
        unsafe { call!(session.driver(), cuMemHostRegister_v2(page, PAGE, DEVICEMAP))? };
        let mut registered = Self { session, page, address: 0 };
        // SAFETY: the driver writes one address to the field; the page was just registered.
        unsafe {
            call!(session.driver(), cuMemHostGetDevicePointer_v2(&raw mut registered.address, page, 0))?
        };
        Ok(registered)
    }

    /// Makes a stream wait until the first word of the page is at least 1.
    fn wait(&self, stream: &Stream<'_>) -> Result<(), Error> {
        // SAFETY: the stream is alive, and the word is in a registered page that outlives the wait: after a timeout the page is never
        // released.
        unsafe {
            call!(
                self.session.driver(),
                cuStreamWaitValue32_v2(stream.handle(), self.address, 1, CU_STREAM_WAIT_VALUE_GEQ)
            )
        }
    }
}

impl Drop for RegisteredPage<'_> {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, and only there.
        let _ = unsafe { call!(self.session.driver(), cuMemHostUnregister(self.page)) };
    }
}
