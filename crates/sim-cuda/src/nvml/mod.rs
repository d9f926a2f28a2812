//! The management library: the functions that `nvml-wrapper` and tools such as `nvidia-smi` call first.
//!
//! The library is no client of the GPU: each query uses a connection of its own to the daemon, so that it leaves no row in the
//! ledger. A file per chapter of the API; [`session`] has initialisation and device handles.

mod device;
mod events;
mod mig;
mod processes;
mod session;
mod usage;

use crate::border::Ptr;
use sluice_driver_api::types::{c_char, c_uint};

/// Errors with the numbers of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Error {
    /// nvmlInit was not called.
    Uninitialized = 1,
    /// A pointer is null, or a number out of range.
    InvalidArgument = 2,
    /// This GPU does not have the queried feature.
    NotSupported = 3,
    /// The caller lacks a privilege.
    NoPermission = 4,
    /// There is no such device.
    NotFound = 6,
    /// The caller's array is too small.
    InsufficientSize = 7,
    /// No daemon answers.
    DriverNotLoaded = 9,
    /// No event occurred within the timeout.
    Timeout = 10,
    /// The GPU does not answer: it has fallen off the bus, or its daemon has ended.
    GpuIsLost = 15,
    /// A structure has a version that this library does not know.
    ArgumentVersionMismatch = 25,
    Unknown = 999,
}

/// The number that stands for no MIG instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

type Answer = Result<(), Error>;

fn put<T: Copy>(out: Ptr<T>, value: T) -> Answer {
    out.write(value).map_err(|_| Error::InvalidArgument)
}

fn put_text(out: Ptr<c_char>, text: &str, size: c_uint) -> Answer {
    if (size as usize) <= text.len() {
        return Err(Error::InsufficientSize);
    }
    out.write_text(text, size as usize).map_err(|_| Error::InvalidArgument)
}

fn get<T: Copy>(argument: Ptr<T>) -> Result<T, Error> {
    argument.read().map_err(|_| Error::InvalidArgument)
}

fn number(index: usize) -> c_uint {
    c_uint::try_from(index).unwrap_or(c_uint::MAX)
}

/// Functions with their C interface. Those of `once initialised` fail before nvmlInit, as nearly all functions of NVML do.
macro_rules! nvml {
    (once initialised: $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $crate::nvml::nvml! { $(fn $name($($argument: $kind),*) {
            $crate::nvml::session::is_open()?;
            $body
        })* }
    };
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> ::sluice_driver_api::types::c_uint {
            // SAFETY: the caller of NVML guarantees that pointers are null or valid for the function's use.
            $(let $argument = unsafe { <$kind as $crate::border::CArgument>::convert($argument) };)*
            let work = || -> $crate::nvml::Answer { $body };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => error as ::sluice_driver_api::types::c_uint,
                Err(_) => $crate::nvml::Error::Unknown as ::sluice_driver_api::types::c_uint,
            }
        }
    )* };
}
use nvml;
