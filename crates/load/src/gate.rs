//! Whether a stream waits for a word in host memory, and goes on when the host stores there: tried, not asked for.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sluice_driver_api::types::CU_STREAM_WAIT_VALUE_GEQ;
use sluice_sys::page::{Access, SharedPage};
use std::os::fd::AsFd;

use crate::driver::{Error, check, function};
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::session::{Session, Stream};

/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
const DEVICEMAP: u32 = 2;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: u32 = 8;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Kernels that run beside a stream that should stand.
const BESIDE: u32 = 8;
/// Time of each.
const KERNEL: Duration = Duration::from_micros(500);
/// How long a released stream may take: it is a matter of microseconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
pub enum Outcome {
    /// The stream stood while others ran, and went on after the store.
    Works,
    /// The driver refused.
    Refused {
        /// The call, and what it returned.
        why: String,
    },
    /// The stream went on without the store.
    DoesNotWait,
    /// The stream still stood seconds after the store. It cannot be cleaned up: the process has to be killed.
    NotReleased,
}

/// A stream waits for a word of an ordinary shared page.
#[must_use]
pub fn writable(session: &Session) -> Outcome {
    outcome(
        SharedPage::create("sluice-gate").map_err(io).and_then(|(page, _)| attempt(session, &page, &page, 0)),
    )
}

/// A stream waits for a word of a page that this mapping cannot write, as a tenant would that must not open its own gate.
#[must_use]
pub fn read_only(session: &Session) -> Outcome {
    let made = SharedPage::create("sluice-gate").and_then(|(writer, file)| {
        SharedPage::seal_future_write(&file)?;
        let readable = SharedPage::reopen_read_only(&file)?;
        Ok((writer, SharedPage::map(readable.as_fd(), Access::ReadOnly)?))
    });
    let tried = made.map_err(io).and_then(|(writer, reader)| attempt(session, &reader, &writer, READ_ONLY));
    outcome(tried)
}

/// Why a trial did not get to its end.
enum Failed {
    Driver(Error),
    System(std::io::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

fn io(error: std::io::Error) -> Failed {
    Failed::System(error)
}

fn outcome(tried: Result<Outcome, Failed>) -> Outcome {
    let refused = |why: String| Outcome::Refused { why };
    tried.unwrap_or_else(|failed| match failed {
        Failed::Driver(error) => refused(error.to_string()),
        Failed::System(error) => refused(format!("cannot make a page: {error}")),
    })
}

/// The GPU looks at `seen`, the host stores to `stored`; both are mappings of one page.
fn attempt(session: &Session, seen: &SharedPage, stored: &SharedPage, flags: u32) -> Result<Outcome, Failed> {
    let page = Registered::new(session, seen, DEVICEMAP | flags)?;
    let (gated, beside) = (session.stream()?, session.stream()?);
    let buffer = DeviceBuffer::with_initial_words(session, 1024)?;
    page.wait(&gated)?;
    let reached = session.event()?;
    reached.record(&gated)?;
    for _ in 0..BESIDE {
        beside.launch(&buffer, 1, kernel::iterations(KERNEL))?;
    }
    beside.synchronize()?;
    if reached.is_reached()? {
        return Ok(Outcome::DoesNotWait);
    }
    let word: Option<&AtomicU64> = stored.words().first();
    word.into_iter().for_each(|word| word.store(1, Ordering::SeqCst));
    let until = Instant::now() + PATIENCE;
    while !reached.is_reached()? {
        if Instant::now() >= until {
            // Whoever cleaned up would wait for ever.
            let _stuck = ManuallyDrop::new((reached, buffer, beside, gated, page));
            return Ok(Outcome::NotReleased);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(Outcome::Works)
}

/// A page that the device can read.
struct Registered<'s> {
    session: &'s Session,
    page: *mut c_void,
    address: u64,
}

impl<'s> Registered<'s> {
    fn new(session: &'s Session, page: &SharedPage, flags: u32) -> Result<Self, Error> {
        let page: *mut c_void = std::ptr::from_ref(page.words()).cast_mut().cast();
        let register = function!(session.driver(), cuMemHostRegister_v2)?;
        // SAFETY: a whole mapped page, which the caller keeps mapped until this is dropped.
        check("cuMemHostRegister", unsafe { register(page, PAGE, flags) })?;
        let mut registered = Self { session, page, address: 0 };
        let get = function!(session.driver(), cuMemHostGetDevicePointer_v2)?;
        // SAFETY: the driver writes one address to a field of ours; the page was just registered.
        let status = unsafe { get(&raw mut registered.address, page, 0) };
        check("cuMemHostGetDevicePointer", status)?;
        Ok(registered)
    }

    /// Holds a stream until the first word of the page is at least 1.
    fn wait(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let wait = function!(self.session.driver(), cuStreamWaitValue32_v2)?;
        // SAFETY: the stream is alive, and the word lies in a registered page that outlives the wait: who gives up on it
        // ends the process.
        let status = unsafe { wait(stream.handle(), self.address, 1, CU_STREAM_WAIT_VALUE_GEQ) };
        check("cuStreamWaitValue32", status)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(unregister) = self.session.driver().api().cuMemHostUnregister {
            // SAFETY: registered in `new`, and only there.
            let _ = unsafe { unregister(self.page) };
        }
    }
}
