//! Primary contexts: each device has one, which all users in a process share. It ends with its last release, or when it is reset.
//!
//! Before a call that may end it, all its work has to run, including preempted work ([`ending`]). A release that is not the last must not
//! do that, so the program's retains are counted.

use std::cell::Cell;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::{CUcontext, CUdevice};
use sluice_hook_core::retain_count::RetainCount;

use super::context::{ending, has_ended, make};
use crate::fork;
use crate::gpu::MAX_DEVICES;
use crate::guard::written;
use crate::known_contexts;
use crate::real;

static RETAINS: [RetainCount; MAX_DEVICES] = [const { RetainCount::new() }; MAX_DEVICES];

thread_local! {
    /// The thread is inside the driver's part of one of these calls. Calls that the driver makes meanwhile are part of it.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// `cuDevicePrimaryCtxRetain`.
///
/// # Safety
/// `context` is null or writable. If `real` succeeds, it has written `context` unless it is null.
pub(crate) unsafe fn retain(
    context: *const CUcontext,
    device: CUdevice,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let counted = !INSIDE.get() && !fork::has_forked();
    let make = || make(device, || inside(real));
    let result = match retains(device).filter(|_| counted) {
        Some(retains) => retains.retain(make, |result| *result == CUresult::SUCCESS),
        None => make(),
    };
    if result == CUresult::SUCCESS
        // SAFETY: null or written: the driver has succeeded.
        && let Some(context) = unsafe { written(context) }
    {
        known_contexts::add(context.expose_provenance() as u64);
    }
    result
}

/// `cuDevicePrimaryCtxRelease`.
pub(crate) fn release(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let real = || inside(real);
    if INSIDE.get() || is_active(device) != Some(true) {
        return real();
    }
    // Another thread may have held the lock when this process was forked.
    let made = match retains(device) {
        Some(retains) if !fork::has_forked() => retains.release(real),
        _ => Err(real),
    };
    let real = match made {
        Ok(result) => return result,
        Err(real) => real,
    };
    match primary(device) {
        // Regardless of the result: see `has_ended`.
        Some(context) => ending_alone(device, context, real, |_| is_active(device) == Some(false)),
        None => real(),
    }
}

/// As [`ending`]. From the driver's call on until the end of the context is dealt with, no other thread makes a new primary context.
fn ending_alone(
    device: CUdevice,
    context: u64,
    real: impl FnOnce() -> CUresult,
    ended: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    let mut alone = None;
    let real = || {
        alone = retains(device).filter(|_| !fork::has_forked()).map(RetainCount::begin_end);
        real()
    };
    // Pools and their memory belong to the device and stay (measured on an H100).
    let result = ending(context, true, real, ended);
    drop(alone);
    result
}

/// `cuDevicePrimaryCtxReset`: ends the context, however often it was retained.
pub(crate) fn reset(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let real = || inside(real);
    if INSIDE.get() {
        return real();
    }
    // It is unknown whether the driver keeps its count over a reset, and how a concurrent retain is ordered against the reset.
    let forget = || retains(device).filter(|_| !fork::has_forked()).into_iter().for_each(RetainCount::forget);
    forget();
    let result = match primary(device) {
        Some(context) => {
            let ended = |result| has_ended(result) || is_active(device) == Some(false);
            ending_alone(device, context, real, ended)
        }
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
        // SAFETY: `context` is writable; the reference taken is released at once, and is not the last one.
        let retained = unsafe { retain(&raw mut context, device) };
        (retained == CUresult::SUCCESS).then(|| {
            // SAFETY: releases the reference taken above.
            let _released = unsafe { release(device) };
            context.expose_provenance() as u64
        })
    })
}
