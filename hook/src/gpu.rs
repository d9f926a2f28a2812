//! Questions to the real driver, and calls in a context. Contexts, streams and events are numbers to the rest of the hook.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use sluice_driver_api::types::*;
use sluice_hook_core::platform::{Stream, StreamKind};

use crate::captures::CAPTURES;
use crate::real;

const REGISTER_DEVICEMAP: c_uint = 2;

/// Maximum number of devices that a process can see.
pub(crate) const MAX_DEVICES: usize = 64;

/// Number of devices that the process sees; 0 until queried.
static DEVICE_COUNT: AtomicI32 = AtomicI32::new(0);

/// Whether the process is known to see one device only. Does not call the driver.
pub(crate) fn sees_one_device() -> bool {
    DEVICE_COUNT.load(Relaxed) == 1
}

/// Queries the driver for the number of devices, once.
pub(crate) fn count_devices() {
    if DEVICE_COUNT.load(Relaxed) == 0 {
        DEVICE_COUNT.store(device_count().unwrap_or(0), Relaxed);
    }
}

/// The context in which calls of this thread on `stream` run.
pub(crate) fn context_of(stream: Stream) -> Option<u64> {
    let created = (stream.kind == StreamKind::Created).then(|| pointer(stream.driver_handle()));
    created.and_then(|stream| stream_context(stream).ok().flatten()).or_else(current_context)
}

pub(crate) fn current_context() -> Option<u64> {
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is writable.
    let asked = unsafe { real::table().cuCtxGetCurrent?(&raw mut context) };
    (asked == CUresult::SUCCESS && !context.is_null()).then(|| context.expose_provenance() as u64)
}

/// The context of a created stream that the program is using; the driver's error if it reports none.
pub(crate) fn stream_context(stream: CUstream) -> Result<Option<u64>, CUresult> {
    let mut context = std::ptr::null_mut();
    let get = real::table().cuStreamGetCtx.ok_or(CUresult::ERROR_NOT_FOUND)?;
    // SAFETY: the program is using the stream, so it is alive; `context` is writable.
    match unsafe { get(stream, &raw mut context) } {
        CUresult::SUCCESS => Ok((!context.is_null()).then(|| context.expose_provenance() as u64)),
        error => Err(error),
    }
}

/// Whether the legacy default stream orders itself with a created stream that the program is using; `None` if the driver does not report it.
pub(crate) fn is_blocking(stream: CUstream) -> Option<bool> {
    let mut flags = 0;
    // SAFETY: the program is using the stream, so it is alive; `flags` is writable.
    let asked = unsafe { real::table().cuStreamGetFlags?(stream, &raw mut flags) };
    (asked == CUresult::SUCCESS).then_some(flags & CU_STREAM_NON_BLOCKING == 0)
}

/// The device of a stream that the program is using: that of its context, or of the calling thread's context for default streams.
pub(crate) fn stream_device(stream: CUstream) -> Option<CUdevice> {
    /// Handles up to this one name default streams.
    const LAST_DEFAULT: usize = 2;
    let created = (stream.addr() > LAST_DEFAULT && !sees_one_device()).then_some(stream);
    match created.and_then(|stream| stream_context(stream).ok().flatten()) {
        Some(context) => with_context(context, current_device)?,
        None => current_device(),
    }
}

/// Whether one end of a described copy is on the host.
pub(crate) fn is_host_end(kind: CUmemorytype, unified: CUdeviceptr) -> bool {
    kind == CU_MEMORYTYPE_HOST || kind == CU_MEMORYTYPE_UNIFIED && is_on_host(unified)
}

/// Whether a unified address belongs to the host. The driver does not know host memory that it did not pin.
pub(crate) fn is_on_host(address: CUdeviceptr) -> bool {
    memory_type(address) != Some(CU_MEMORYTYPE_DEVICE)
}

/// The kind of memory at an address; `None` if the driver does not know it.
pub(crate) fn memory_type(address: CUdeviceptr) -> Option<CUmemorytype> {
    let mut kind: CUmemorytype = 0;
    let ask = real::table().cuPointerGetAttribute?;
    // SAFETY: the attribute is an unsigned int, and `kind` is writable; any address may be queried.
    let asked = unsafe { ask((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) };
    (asked == CUresult::SUCCESS).then_some(kind)
}

/// The pool from which allocations of a device's streams are made.
pub(crate) fn current_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: `pool` is writable.
    let asked = unsafe { real::table().cuDeviceGetMemPool?(&raw mut pool, device) };
    (asked == CUresult::SUCCESS).then_some(pool)
}

/// The pool that a device has from the beginning.
pub(crate) fn default_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: `pool` is writable.
    let asked = unsafe { real::table().cuDeviceGetDefaultMemPool?(&raw mut pool, device) };
    (asked == CUresult::SUCCESS).then_some(pool)
}

/// An attribute of a pool that the program has not destroyed, in bytes.
pub(crate) fn pool_bytes(pool: u64, attribute: CUmemPool_attribute) -> Option<u64> {
    let mut bytes = 0u64;
    let get = real::table().cuMemPoolGetAttribute?;
    // SAFETY: the pool is alive, and sizes are 64 bits wide.
    let asked = unsafe { get(pointer(pool), attribute, (&raw mut bytes).cast()) };
    (asked == CUresult::SUCCESS).then_some(bytes)
}

/// Bytes that a device keeps for graphs.
pub(crate) fn graph_bytes(device: CUdevice) -> Option<u64> {
    let mut bytes = 0u64;
    let get = real::table().cuDeviceGetGraphMemAttribute?;
    // SAFETY: sizes are 64 bits wide.
    let asked = unsafe { get(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, (&raw mut bytes).cast()) };
    (asked == CUresult::SUCCESS).then_some(bytes)
}

/// A limit of the current context, in bytes.
pub(crate) fn limit(limit: CUlimit) -> Option<u64> {
    let mut value = 0;
    // SAFETY: `value` is writable.
    let asked = unsafe { real::table().cuCtxGetLimit?(&raw mut value, limit) };
    (asked == CUresult::SUCCESS).then_some(value as u64)
}

/// How many threads a device can run at once.
pub(crate) fn resident_threads(device: CUdevice) -> Option<u64> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` is writable.
        let asked = unsafe { real::table().cuDeviceGetAttribute?(&raw mut value, attribute, device) };
        if asked == CUresult::SUCCESS { u64::try_from(value).ok() } else { None }
    };
    let multiprocessors: u64 = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    Some(multiprocessors.saturating_mul(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?))
}

/// The device of the calling thread's context.
pub(crate) fn current_device() -> Option<CUdevice> {
    let mut device = 0;
    // SAFETY: `device` is writable.
    let asked = unsafe { real::table().cuCtxGetDevice?(&raw mut device) };
    (asked == CUresult::SUCCESS).then_some(device)
}

pub(crate) fn device_count() -> Option<c_int> {
    let mut count = 0;
    // SAFETY: `count` is writable.
    let asked = unsafe { real::table().cuDeviceGetCount?(&raw mut count) };
    (asked == CUresult::SUCCESS).then_some(count)
}

/// The device's UUID, that of the MIG instance if it is one.
pub(crate) fn device_uuid(device: CUdevice) -> Option<[u8; 16]> {
    let mut uuid = CUuuid::default();
    let get = real::table().cuDeviceGetUuid_v2.or(real::table().cuDeviceGetUuid)?;
    // SAFETY: `uuid` is writable.
    let asked = unsafe { get(&raw mut uuid, device) };
    (asked == CUresult::SUCCESS).then_some(uuid.bytes)
}

/// Permits driver calls of this thread while the program captures a graph: they use no stream that is being captured.
pub(crate) fn relax_capture_mode() {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if let Some(exchange) = real::table().cuThreadExchangeStreamCaptureMode {
        // SAFETY: `mode` is readable and writable.
        let _previous = unsafe { exchange(&raw mut mode) };
    }
}

/// Runs `call`, which uses no stream that is being captured, so that its driver calls end no capture. In another mode a mere query of an
/// event ends the captures of all threads (measured on an H100).
pub(crate) fn beside_captures<R>(call: impl FnOnce() -> R) -> R {
    if CAPTURES.any() { with_relaxed_capture_mode(call) } else { call() }
}

/// As [`beside_captures`], also if a capture begins meanwhile.
pub(crate) fn with_relaxed_capture_mode<R>(call: impl FnOnce() -> R) -> R {
    let Some(exchange) = real::table().cuThreadExchangeStreamCaptureMode else { return call() };
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` is readable and writable; the first call stores the program's mode there.
    let exchanged = unsafe { exchange(&raw mut mode) };
    let result = call();
    if exchanged == CUresult::SUCCESS {
        // SAFETY: as above.
        let _previous = unsafe { exchange(&raw mut mode) };
    }
    result
}

/// Runs `call` with `context` current, whatever context the calling thread had; `None` if it cannot be made current.
pub(crate) fn with_context<T>(context: u64, call: impl FnOnce() -> T) -> Option<T> {
    if current_context() == Some(context) {
        return Some(call());
    }
    let (push, pop) = (real::table().cuCtxPushCurrent_v2?, real::table().cuCtxPopCurrent_v2?);
    // SAFETY: the context is alive: its destruction waits for the threads that use it here.
    if unsafe { push(pointer(context)) } != CUresult::SUCCESS {
        return None;
    }
    let result = call();
    let mut popped = std::ptr::null_mut();
    // SAFETY: `popped` is writable; pops what was pushed above.
    let _popped = unsafe { pop(&raw mut popped) };
    Some(result)
}

/// Maps host memory of the hook's own into the address space of the current context.
///
/// # Safety
/// `size` bytes at `page` are whole pages, which are never unmapped.
pub(crate) unsafe fn register_page(page: *mut c_void, size: usize) -> CUresult {
    let Some(register) = real::table().cuMemHostRegister_v2 else { return CUresult::ERROR_NOT_SUPPORTED };
    // SAFETY: as the caller guarantees.
    unsafe { register(page, size, REGISTER_DEVICEMAP) }
}

/// The GPU address of a page that is registered with the current context.
pub(crate) fn page_address(page: *mut c_void) -> Result<CUdeviceptr, CUresult> {
    let get = real::table().cuMemHostGetDevicePointer_v2.ok_or(CUresult::ERROR_NOT_SUPPORTED)?;
    let mut device = 0;
    // SAFETY: the driver refuses an address that is not registered; `device` is writable.
    match unsafe { get(&raw mut device, page, 0) } {
        CUresult::SUCCESS => Ok(device),
        error => Err(error),
    }
}

pub(crate) fn pointer<T>(number: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(number).unwrap_or(0))
}
