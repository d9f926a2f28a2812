//! Primary contexts: a device has one, which all of a process share. It ends with its last release, or when it is reset.
//!
//! Before it may end everything of it has to run, also what is held ([`ending`]): nothing that each of many users should do. So the
//! program's retains are counted.

use std::cell::Cell;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::retain_count::RetainCount;

use super::context::{ContextMemory, create, ending, has_ended};
use crate::process::{self, MAX_DEVICES};
use crate::real;

/// By device.
static RETAINS: [RetainCount; MAX_DEVICES] = [const { RetainCount::new() }; MAX_DEVICES];

thread_local! {
    /// The thread is in the driver's part of one of these calls: what the driver calls meanwhile is part of it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let counts = !INSIDE.get() && !process::has_forked();
    let result = create(device, || inside(real));
    if counts
        && result == CUresult::SUCCESS
        && let Some(retains) = retains(device)
    {
        retains.retained();
    }
    result
}

/// `cuDevicePrimaryCtxRelease`.
pub(crate) fn release(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let real = || inside(real);
    if INSIDE.get() || is_active(device) != Some(true) {
        return real();
    }
    // A lock may have been held when this process was forked.
    let made = match retains(device) {
        Some(retains) if !process::has_forked() => retains.release(real),
        _ => Err(real),
    };
    let real = match made {
        Ok(result) => return result,
        Err(real) => real,
    };
    match primary(device) {
        // Whatever it returns: see `has_ended`.
        Some(context) => ending(context, ContextMemory::GoesToo, real, |_| is_active(device) == Some(false)),
        None => real(),
    }
}

/// `cuDevicePrimaryCtxReset`: ends the context, whoever has retained it.
pub(crate) fn reset(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let real = || inside(real);
    if INSIDE.get() {
        return real();
    }
    // Whether the driver goes on counting is not known, nor on which side of the reset a retain is that is made meanwhile.
    let forget =
        || retains(device).filter(|_| !process::has_forked()).into_iter().for_each(RetainCount::forget);
    forget();
    let result = match primary(device) {
        Some(context) => ending(context, ContextMemory::GoesToo, real, |result| {
            has_ended(result) || is_active(device) == Some(false)
        }),
        None => real(),
    };
    forget();
    result
}

fn retains(device: CUdevice) -> Option<&'static RetainCount> {
    RETAINS.get(usize::try_from(device).ok()?)
}

fn inside<R>(call: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = call();
    INSIDE.set(before);
    result
}

fn is_active(device: CUdevice) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are writable.
    let asked = unsafe { real::table().cuDevicePrimaryCtxGetState?(device, &raw mut flags, &raw mut active) };
    (asked == CUresult::SUCCESS).then_some(active != 0)
}

/// The primary context of a device, if it is active.
fn primary(device: CUdevice) -> Option<u64> {
    if is_active(device) != Some(true) {
        return None;
    }
    let table = real::table();
    let release = table.cuDevicePrimaryCtxRelease_v2.or(table.cuDevicePrimaryCtxRelease)?;
    let retain = table.cuDevicePrimaryCtxRetain?;
    let mut context = std::ptr::null_mut();
    inside(|| {
        // SAFETY: `context` is writable; the reference taken is given back at once, and is not the last one.
        let retained = unsafe { retain(&raw mut context, device) };
        (retained == CUresult::SUCCESS).then(|| {
            // SAFETY: gives back the reference taken above.
            let _released = unsafe { release(device) };
            context.expose_provenance() as u64
        })
    })
}
