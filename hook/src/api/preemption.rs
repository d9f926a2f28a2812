//! The C functions that preempt streams.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use sluice_driver_api::types::CUstream;
use sluice_hook_core::outcome::Bypass;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::outcome::Error;

use super::CallResult;
use crate::guard::guarded;
use crate::preempt::program_api::{self, Refusal};

/// `sluice_preemption_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreemptionConfig {
    size: usize,
    queue_size: c_uint,
    batch_size: c_uint,
    task_timeout_us: c_int,
    level: c_int,
    bound_us: c_uint,
    outage_ms: c_uint,
    idle: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    idle_argument: *mut c_void,
}

/// `sluice_preemption`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preemption {
    level: c_int,
    took_ns: c_ulonglong,
}

impl PreemptionConfig {
    const DEFAULT: Self = Self {
        size: size_of::<Self>(),
        queue_size: 32,
        batch_size: 8,
        task_timeout_us: -1,
        level: 0,
        bound_us: 1000,
        outage_ms: 0,
        idle: None,
        idle_argument: std::ptr::null_mut(),
    };

    /// The engine's configuration; `None` if a number is out of range.
    fn config(self) -> Option<Config> {
        let levels = [PreemptionLevel::Host, PreemptionLevel::Device, PreemptionLevel::Full];
        let level = levels.into_iter().find(|level| *level as c_int == self.level)?;
        let config = Config {
            queue_size: self.queue_size,
            batch_size: self.batch_size,
            task_timeout_ns: u64::try_from(self.task_timeout_us).ok().map(|us| us * 1000),
            level,
            bound_ns: u64::from(self.bound_us) * 1000,
            outage_ns: (self.outage_ms > 0).then(|| u64::from(self.outage_ms) * 1_000_000),
            ..Config::default()
        };
        config.is_valid().then_some(config)
    }
}

fn refused(refusal: Refusal) -> CallResult {
    match refusal {
        Refusal::Bypassed(Bypass::Disabled | Bypass::Forked) => CallResult::Disabled,
        Refusal::Bypassed(_) | Refusal::NoThread => CallResult::Internal,
        Refusal::NoContext => CallResult::NoContext,
        Refusal::Engine(error) => match error {
            Error::NotEnabled => CallResult::NotEnabled,
            Error::AlreadyEnabled => CallResult::AlreadyEnabled,
            Error::InvalidConfig => CallResult::Invalid,
            Error::InvalidStream | Error::Closing => CallResult::InvalidStream,
            Error::Timeout { .. } => CallResult::Timeout,
            Error::ContextSaveFailed => CallResult::ContextSaveFailed,
            Error::InsufficientMemory => CallResult::InsufficientMemory,
            Error::GpuHung => CallResult::GpuHung,
            Error::InvalidState => CallResult::InvalidState,
            Error::Driver(_) => CallResult::Internal,
        },
    }
}

/// Runs a call of the program and returns its result as a number.
fn answered(call: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let result = guarded(CallResult::Internal, || call().map_or_else(refused, |()| CallResult::Ok));
    result as c_int
}

/// Writes the default configuration.
///
/// # Safety
/// `config` is null or writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_preemption_defaults(config: *mut PreemptionConfig) {
    if !config.is_null() {
        // SAFETY: as the caller guarantees.
        unsafe { config.write(PreemptionConfig::DEFAULT) };
    }
}

/// Enables preemption.
///
/// # Safety
/// `config` is null or readable for its size; the stream is one of the program's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_preemption_enable(
    stream: CUstream,
    config: *const PreemptionConfig,
) -> c_int {
    // SAFETY: as the caller guarantees; the size comes first.
    let given = match unsafe { config.cast::<usize>().as_ref() } {
        None => PreemptionConfig::DEFAULT,
        // SAFETY: as the caller guarantees.
        Some(&size) if size == size_of::<PreemptionConfig>() => unsafe { config.read() },
        Some(_) => return CallResult::Invalid as c_int,
    };
    let Some(wanted) = given.config() else { return CallResult::Invalid as c_int };
    let idle = given.idle.map(|call| program_api::IdleCallback {
        stream: stream.expose_provenance(),
        call,
        argument: given.idle_argument.expose_provenance(),
    });
    answered(|| program_api::enable(stream, wanted, idle))
}

/// Disables preemption.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_preemption_disable(stream: CUstream) -> c_int {
    answered(|| program_api::disable(stream))
}

/// Preempts a stream.
///
/// # Safety
/// `achieved` is null or writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_preempt(
    stream: CUstream,
    sync: c_int,
    achieved: *mut Preemption,
) -> c_int {
    answered(|| {
        let done = program_api::preempt(stream, sync != 0)?;
        if !achieved.is_null() {
            // SAFETY: as the caller guarantees.
            unsafe { achieved.write(Preemption { level: done.level as c_int, took_ns: done.took_ns }) };
        }
        Ok(())
    })
}

/// Restores a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_restore(stream: CUstream) -> c_int {
    answered(|| program_api::restore(stream))
}

/// Returns the highest level possible for a stream.
///
/// # Safety
/// `level` and `reason` are each null or writable; the stream is one of the program's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_preemption_level(
    stream: CUstream,
    level: *mut c_int,
    reason: *mut *const c_char,
) -> c_int {
    answered(|| {
        let supported = program_api::level(stream)?;
        // SAFETY: as the caller guarantees.
        unsafe {
            if !level.is_null() {
                level.write(supported.level as c_int);
            }
            if !reason.is_null() {
                reason.write(supported.reason.map_or(std::ptr::null(), std::ffi::CStr::as_ptr));
            }
        }
        Ok(())
    })
}
