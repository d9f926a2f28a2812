//! Contexts.

pub(crate) use super::device::*;
// Functions that differ in name only.
pub(crate) use self::{
    cuCtxCreate_v2 as cuCtxCreate, cuCtxDestroy_v2 as cuCtxDestroy, cuCtxPopCurrent_v2 as cuCtxPopCurrent,
    cuCtxPushCurrent_v2 as cuCtxPushCurrent, cuDevicePrimaryCtxRelease_v2 as cuDevicePrimaryCtxRelease,
    cuDevicePrimaryCtxReset_v2 as cuDevicePrimaryCtxReset,
    cuDevicePrimaryCtxSetFlags_v2 as cuDevicePrimaryCtxSetFlags,
};

use super::functions;
use crate::border::{Ptr, Status};
use crate::state::context::{Context, current, current_or_none, pop, push};
use crate::state::driver::{driver, driver_for_unsafe_call};
use crate::state::lock;
use sluice_driver_api::types::*;
use std::sync::Arc;

fn context(handle: Ptr<CUctx_st>) -> Result<Arc<Context>, CUresult> {
    if handle.is_null() {
        return current();
    }
    driver()?.contexts.get(handle.address()).ok_or(CUresult::ERROR_INVALID_CONTEXT)
}

pub(crate) fn cuCtxCreate_v2(handle: Ptr<CUcontext>, flags: c_uint, device: CUdevice) -> Status {
    let device = driver()?.device(device)?;
    handle.required()?;
    let context = Context::open(device, flags)?;
    push(context.clone());
    handle.write_handle(context.handle)
}

pub(crate) fn cuCtxCreate_v3(
    handle: Ptr<CUcontext>,
    _params: Ptr<CUexecAffinityParam>,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    if count != 0 {
        return Err(CUresult::ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    cuCtxCreate_v2(handle, flags, device)
}

pub(crate) fn cuCtxGetCurrent(handle: Ptr<CUcontext>) -> Status {
    driver()?;
    handle.write_handle(current_or_none().map_or(0, |context| context.handle))
}

pub(crate) fn cuCtxSetCurrent(handle: Ptr<CUctx_st>) -> Status {
    driver()?;
    let next = if handle.is_null() { None } else { Some(context(handle)?) };
    pop();
    next.into_iter().for_each(push);
    Ok(())
}

pub(crate) fn cuCtxPushCurrent_v2(handle: Ptr<CUctx_st>) -> Status {
    driver()?;
    if handle.is_null() {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    push(context(handle)?);
    Ok(())
}

pub(crate) fn cuCtxPopCurrent_v2(handle: Ptr<CUcontext>) -> Status {
    driver()?;
    let context = pop().ok_or(CUresult::ERROR_INVALID_CONTEXT)?;
    if !handle.is_null() {
        handle.write_handle(context.handle)?;
    }
    Ok(())
}

pub(crate) fn cuCtxGetStreamPriorityRange(least: Ptr<c_int>, greatest: Ptr<c_int>) -> Status {
    current()?;
    least.write_if_wanted(0);
    greatest.write_if_wanted(super::stream::GREATEST_PRIORITY);
    Ok(())
}

pub(crate) fn cuCtxGetLimit(value: Ptr<usize>, limit: CUlimit) -> Status {
    /// The buffer of printf.
    const PRINTF: (CUlimit, usize) = (1, 1 << 20);
    let context = current()?;
    let other = if limit == PRINTF.0 { PRINTF.1 } else { 0 };
    value.write(context.limits.get(limit).unwrap_or(other))
}

fn synchronize(context: &Context) -> Status {
    driver()?.captures.forbid_context(context)?;
    driver_for_unsafe_call()?;
    context.synchronize()
}

pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Status {
    lock(&driver()?.device(device)?.primary).flags = flags;
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Ptr<c_uint>, active: Ptr<c_int>) -> Status {
    let device = driver()?.device(device)?;
    let primary = lock(&device.primary);
    flags.write_if_wanted(primary.flags);
    active.write_if_wanted(primary.context.is_some().into());
    Ok(())
}

functions! {
    fn cuCtxDestroy_v2(handle: Ptr<CUctx_st>)
        = driver()?.contexts.get(handle.address()).ok_or(CUresult::ERROR_INVALID_CONTEXT)?.destroy();
    fn cuDevicePrimaryCtxRetain(handle: Ptr<CUcontext>, device: CUdevice)
        = {
        let device = driver()?.device(device)?;
        handle.required()?;
        handle.write_handle(device.retain()?.handle)
    };
    fn cuCtxGetSharedMemConfig(config: Ptr<CUsharedconfig>) = current().and_then(|_| config.write(0));
    fn cuCtxGetCacheConfig(config: Ptr<CUfunc_cache>) = current().and_then(|_| config.write(0));
    fn cuCtxGetApiVersion(handle: Ptr<CUctx_st>, version: Ptr<c_uint>)
        = context(handle).and_then(|_| version.write(3_020));
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) = driver()?.device(device)?.release(false);
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) = driver()?.device(device)?.release(true);
    fn cuCtxCreate_v4(handle: Ptr<CUcontext>, _params: Ptr<CUctxCreateParams>, flags: c_uint, device: CUdevice)
        = cuCtxCreate_v2(handle, flags, device);
    fn cuCtxAttach(handle: Ptr<CUcontext>, _flags: c_uint) = {
        let context = current()?;
        handle.required()?;
        context.attach();
        handle.write_handle(context.handle)
    };
    fn cuCtxDetach(handle: Ptr<CUctx_st>)
        = driver()?.contexts.get(handle.address()).ok_or(CUresult::ERROR_INVALID_CONTEXT)?.detach();
    fn cuCtxGetDevice(device: Ptr<CUdevice>) = device.write(current()?.device.number());
    fn cuCtxGetDevice_v2(device: Ptr<CUdevice>, handle: Ptr<CUctx_st>)
        = device.write(context(handle)?.device.number());
    fn cuCtxGetFlags(flags: Ptr<c_uint>) = flags.write(current()?.flags);
    fn cuCtxGetId(handle: Ptr<CUctx_st>, id: Ptr<c_ulonglong>) = id.write(context(handle)?.handle as u64);
    fn cuCtxSetLimit(limit: CUlimit, value: usize) = {
        let context = current()?;
        context.limits.set(&context.device, limit, value)
    };
    fn cuCtxSetCacheConfig(_config: CUfunc_cache) = current().map(drop);
    fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) = current().map(drop);
    fn cuCtxResetPersistingL2Cache() = current().map(drop);
    fn cuCtxSynchronize() = synchronize(&*current()?);
    fn cuCtxSynchronize_v2(handle: Ptr<CUctx_st>) = synchronize(&*context(handle)?);
}
