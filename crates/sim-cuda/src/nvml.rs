//! The management library: what `nvml-wrapper` and `nvidia-smi`-like tools ask for first.
//!
//! It is no client of the GPU: each question goes to the daemon on a connection of its own, so that asking leaves no row
//! in the ledger.

use crate::border::{Border, Ptr};
use sluice_driver_api::types::{c_char, c_int, c_uint, c_ulonglong, c_void};
use sluice_sim::client::{self, GpuInfo};
use sluice_sim::ledger::ProcessLedger;
use std::path::PathBuf;

/// Why a call failed, as NVML numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Error {
    /// A pointer is null, or a number out of range.
    InvalidArgument = 2,
    /// This GPU has no such thing.
    NotSupported = 3,
    /// There is no such device.
    NotFound = 6,
    /// The caller's array is too small.
    InsufficientSize = 7,
    /// No daemon is named in the environment.
    DriverNotLoaded = 9,
    /// The daemon does not answer.
    GpuIsLost = 15,
}

type Answer = Result<(), Error>;

/// Device handles are ordinals, from here on.
const FIRST_HANDLE: usize = 0x6d70;

fn sockets() -> Vec<PathBuf> {
    let sockets = std::env::var("SLUICE_SIM_SOCKET").unwrap_or_default();
    sockets.split(',').filter(|socket| !socket.is_empty()).map(PathBuf::from).collect()
}

fn socket(device: Ptr<c_void>) -> Result<(usize, PathBuf), Error> {
    let ordinal = device.address().checked_sub(FIRST_HANDLE).ok_or(Error::InvalidArgument)?;
    let socket = sockets().into_iter().nth(ordinal).ok_or(Error::InvalidArgument)?;
    Ok((ordinal, socket))
}

fn info(device: Ptr<c_void>) -> Result<GpuInfo, Error> {
    client::gpu_info(&socket(device)?.1).map_err(|_| Error::GpuIsLost)
}

fn ledger(device: Ptr<c_void>) -> Result<sluice_sim::ledger::Ledger, Error> {
    client::ledger(&socket(device)?.1).map_err(|_| Error::GpuIsLost)
}

fn put<T: Copy>(out: Ptr<T>, value: T) -> Answer {
    out.write(value).map_err(|_| Error::InvalidArgument)
}

fn put_text(out: Ptr<c_char>, text: &str, size: c_uint) -> Answer {
    if (size as usize) <= text.len() {
        return Err(Error::InsufficientSize);
    }
    out.write_text(text, size as usize).map_err(|_| Error::InvalidArgument)
}

/// The text form of a device's identity.
fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t`, as of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// No MIG instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

fn processes(device: Ptr<c_void>, count: Ptr<c_uint>, out: Ptr<Process>) -> Answer {
    let ledger = ledger(device)?;
    let lives = |row: &&ProcessLedger| !row.ended && row.context_bytes + row.memory_bytes > 0;
    let rows: Vec<_> = ledger.processes.iter().filter(lives).collect();
    let room = count.read().map_err(|_| Error::InvalidArgument)? as usize;
    put(count, c_uint::try_from(rows.len()).unwrap_or(c_uint::MAX))?;
    if room < rows.len() {
        return Err(Error::InsufficientSize);
    }
    for (index, row) in rows.into_iter().enumerate() {
        let process = Process {
            pid: row.pid.cast_unsigned(),
            used: row.memory_bytes + row.context_bytes,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        };
        put(out.at(index), process)?;
    }
    Ok(())
}

macro_rules! nvml {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_uint {
            // SAFETY: the caller of NVML promises that pointers are null or valid for what the function does.
            $(let $argument = unsafe { <$kind as Border>::cross($argument) };)*
            let work = || -> Answer { $body };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => error as c_uint,
                Err(_) => 999,
            }
        }
    )* };
}

nvml! {
    fn nvmlInit_v2() {
        if sockets().is_empty() { Err(Error::DriverNotLoaded) } else { Ok(()) }
    }

    fn nvmlInit() {
        if sockets().is_empty() { Err(Error::DriverNotLoaded) } else { Ok(()) }
    }

    fn nvmlInitWithFlags(_flags: c_uint) {
        if sockets().is_empty() { Err(Error::DriverNotLoaded) } else { Ok(()) }
    }

    fn nvmlShutdown() {
        Ok(())
    }

    fn nvmlSystemGetDriverVersion(out: *mut c_char, size: c_uint) {
        put_text(out, "580.159.04", size)
    }

    fn nvmlSystemGetNVMLVersion(out: *mut c_char, size: c_uint) {
        put_text(out, "13.580.159.04", size)
    }

    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) {
        put(out, 13_000)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) {
        put(out, 13_000)
    }

    fn nvmlDeviceGetCount_v2(out: *mut c_uint) {
        put(out, c_uint::try_from(sockets().len()).unwrap_or(c_uint::MAX))
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut *mut c_void) {
        if index as usize >= sockets().len() {
            return Err(Error::InvalidArgument);
        }
        out.write_handle(FIRST_HANDLE + index as usize).map_err(|_| Error::InvalidArgument)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut *mut c_void) {
        let wanted = uuid.text().map_err(|_| Error::InvalidArgument)?;
        let is_it = |socket: &PathBuf| client::gpu_info(socket).is_ok_and(|info| uuid_text(info.uuid) == wanted);
        let ordinal = sockets().iter().position(is_it).ok_or(Error::NotFound)?;
        out.write_handle(FIRST_HANDLE + ordinal).map_err(|_| Error::InvalidArgument)
    }

    fn nvmlDeviceGetIndex(device: *mut c_void, out: *mut c_uint) {
        put(out, c_uint::try_from(socket(device)?.0).unwrap_or(c_uint::MAX))
    }

    fn nvmlDeviceGetMinorNumber(device: *mut c_void, out: *mut c_uint) {
        put(out, c_uint::try_from(socket(device)?.0).unwrap_or(c_uint::MAX))
    }

    fn nvmlDeviceGetName(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &info(device)?.name, size)
    }

    fn nvmlDeviceGetUUID(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &uuid_text(info(device)?.uuid), size)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: *mut c_void, major: *mut c_int, minor: *mut c_int) {
        socket(device)?;
        put(major, 9)?;
        put(minor, 0)
    }

    fn nvmlDeviceGetMigMode(device: *mut c_void, _current: *mut c_uint, _pending: *mut c_uint) {
        socket(device)?;
        Err(Error::NotSupported)
    }

    fn nvmlDeviceGetMemoryInfo(device: *mut c_void, out: *mut Memory) {
        let gpu = ledger(device)?.gpu;
        put(out, Memory { total: gpu.memory_total, free: gpu.memory_total - gpu.memory_used, used: gpu.memory_used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, out: *mut MemoryV2) {
        let version = out.read().map_err(|_| Error::InvalidArgument)?.version;
        let gpu = ledger(device)?.gpu;
        let free = gpu.memory_total - gpu.memory_used;
        put(out, MemoryV2 { version, total: gpu.memory_total, reserved: 0, free, used: gpu.memory_used })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(device: *mut c_void, count: *mut c_uint, out: *mut Process) {
        processes(device, count, out)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: *mut c_void, count: *mut c_uint, out: *mut Process) {
        processes(device, count, out)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: *mut c_void, count: *mut c_uint, _out: *mut Process) {
        socket(device)?;
        put(count, 0)
    }

    fn nvmlDeviceGetUtilizationRates(device: *mut c_void, out: *mut Utilization) {
        /// The driver's sampling period is between a sixth of a second and one second.
        const PERIOD_NS: u64 = 1_000_000_000;
        let now = ledger(device)?.gpu.now_ns;
        let window = client::window(&socket(device)?.1, now.saturating_sub(PERIOD_NS), now);
        let busy = window.map_err(|_| Error::GpuIsLost)?.busy_ns;
        let gpu = c_uint::try_from(busy * 100 / PERIOD_NS).unwrap_or(100);
        put(out, Utilization { gpu, memory: 0 })
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(error: c_uint) -> *const c_char {
    let text = match error {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        15 => c"GPU is lost",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
