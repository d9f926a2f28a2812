//! The state of this process: configuration, devices, allocations and captures.
//!
//! Devices are made when first needed and never freed. In the child of a fork one flag is set, after which every call bypasses.

pub(crate) mod accounts;
mod setup;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::allocations::AllocationTable;
use sluice_hook_core::captures::Captures;
use sluice_hook_core::device::Device;
use sluice_hook_core::lock;
use sluice_hook_core::memory::MemoryAccount;
use sluice_hook_core::outcome::{Bypass, Counters};
use sluice_hook_core::platform::Clock;
use sluice_hook_core::thread_state::ThreadState;

use crate::clock::HostClock;
use crate::governed::guarded;
use crate::gpu::{self, Gpu};
use crate::leaked::Leaked;
use crate::link::{MemoryConnection, TokenConnection};
use crate::{channel_groups, hold_kernel, log, preempt, thread};
use setup::{NoDevice, make_device, setup};

/// Maximum number of devices that a process can see.
pub(crate) const MAX_DEVICES: usize = 64;

/// How often to reconnect to a memory manager that was away.
const MEMORY_CHECK_NS: u64 = 250_000_000;

/// How long to wait after a failed start of the tracker.
const START_RETRY_NS: u64 = 100_000_000;

pub(crate) static COUNTERS: Counters = Counters::zero();
pub(crate) static CAPTURES: Captures = Captures::new();

static ALLOCATIONS: Mutex<AllocationTable> = Mutex::new(AllocationTable::new());
static DEVICES: [Leaked<ManagedDevice>; MAX_DEVICES] = [const { Leaked::none() }; MAX_DEVICES];
/// The device, if the process sees only one and it is managed.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
static ONLY_DEVICE: Leaked<ManagedDevice> = Leaked::none();
/// Bit n: the process has made a context on device n.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);
/// Number of devices that the process sees; 0 until queried.
static DEVICE_COUNT: AtomicI32 = AtomicI32::new(0);
/// Bit n: device n has no manager.
static UNMANAGED: AtomicU64 = AtomicU64::new(0);
/// The driver was initialised in this process, or in the one that it was forked from.
static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The state of this thread. Constant and without a destructor: access costs an address computation.
    static THREAD: ThreadState = const { ThreadState::empty() };
    static SETTING_UP: Cell<bool> = const { Cell::new(false) };
}

pub(crate) type GpuDevice = Device<'static, Gpu, TokenConnection, HostClock>;

/// One device with its connections to the manager.
pub(crate) struct ManagedDevice {
    pub(crate) device: GpuDevice,
    /// Shared with NVML's device of the same GPU.
    pub(crate) memory: &'static MemoryAccount<MemoryConnection>,
    pub(crate) ordinal: u32,
    pub(crate) active_hold: hold_kernel::ActiveHold,
    /// Held while a limit of a context changes that takes memory.
    pub(crate) changing_limit: Mutex<()>,
    tracked: AtomicBool,
    /// When the tracker may be started again after a failure.
    next_start_ns: AtomicU64,
}

impl ManagedDevice {
    /// Starts the tracker if it does not run: it keeps the connections, which launches and allocations need. `false` if the system has no
    /// thread for it. Then calls bypass, and a later call tries again.
    pub(crate) fn track(&'static self) -> bool {
        if self.tracked.load(Acquire) {
            return true;
        }
        let now = HostClock.now_ns();
        if now < self.next_start_ns.load(Relaxed) {
            return false;
        }
        if self.tracked.swap(true, AcqRel)
            || thread::start(c"sluice-tracker", thread::SMALL_STACK_BYTES, move || self.run_tracker())
        {
            return true;
        }
        self.device.bypass_all();
        self.next_start_ns.store(now.saturating_add(START_RETRY_NS), Relaxed);
        self.tracked.store(false, Release);
        false
    }

    fn run_tracker(&'static self) {
        // A panic would leave all waiting launches blocked, so it is counted and the tracker goes on, up to a limit.
        for _ in 0..100 {
            if catch_unwind(AssertUnwindSafe(|| self.try_run_tracker())).is_ok() {
                return;
            }
            COUNTERS.panics.fetch_add(1, Relaxed);
        }
        self.device.bypass_all();
    }

    fn try_run_tracker(&'static self) {
        gpu::relax_capture_mode();
        let last_check_ns = Cell::new(0);
        self.device.run_tracker(has_forked, || {
            hold_kernel::expire_and_count(self);
            preempt::manager::follow_gate_word(self);
            let now = HostClock.now_ns();
            if now.saturating_sub(last_check_ns.get()) >= MEMORY_CHECK_NS {
                last_check_ns.set(now);
                self.memory.reattach_if_lost();
            }
        });
    }
}

/// Runs `call` with the state of the calling thread.
///
/// `call` does not run inside `LocalKey::with`: the compiler makes that a function, to which a driver call's arguments would go through memory.
#[inline]
pub(crate) fn with_thread<R>(call: impl FnOnce(&ThreadState) -> R) -> R {
    let thread = THREAD.with(std::ptr::from_ref);
    // SAFETY: the state is constant-initialised and has no destructor, so it exists until its thread ends. `call` runs on this thread and
    // cannot keep the reference.
    call(unsafe { &*thread })
}

pub(crate) fn allocations() -> MutexGuard<'static, AllocationTable> {
    lock(&ALLOCATIONS)
}

/// The one managed device of a process that sees one device and has launched on it.
#[inline]
pub(crate) fn only_device() -> Option<&'static ManagedDevice> {
    ONLY_DEVICE.get()
}

/// The managed device of the calling thread's context, ready for launches.
#[cold]
pub(crate) fn device_for_launch() -> Result<&'static ManagedDevice, Bypass> {
    check_governed()?;
    // Queried once: a process with several devices comes here for each launch.
    count_devices();
    // Without a current context the launch may still go to a stream's context. With one device its gate is the only one.
    let only = || (DEVICE_COUNT.load(Relaxed) == 1).then_some(0);
    let managed = device_of(gpu::current_device().or_else(only).ok_or(Bypass::NoContext)?)?;
    if !managed.track() {
        return Err(Bypass::InternalError);
    }
    if DEVICE_COUNT.load(Relaxed) == 1 {
        ONLY_DEVICE.share(managed);
    }
    Ok(managed)
}

/// The device that a call of this thread concerns, if it is in use.
pub(crate) fn device_for_call() -> Option<&'static ManagedDevice> {
    if has_forked() {
        return None;
    }
    only_device().or_else(|| device_in_use(u32::try_from(gpu::current_device()?).ok()?))
}

/// The managed device of the calling thread's context.
pub(crate) fn current_device() -> Result<&'static ManagedDevice, Bypass> {
    check_governed()?;
    match only_device() {
        Some(managed) => Ok(managed),
        None => device_of(gpu::current_device().ok_or(Bypass::NoContext)?),
    }
}

/// The device of an ordinal, with its manager.
pub(crate) fn device_of(ordinal: CUdevice) -> Result<&'static ManagedDevice, Bypass> {
    check_governed()?;
    let at = usize::try_from(ordinal).map_err(|_| Bypass::NotManaged)?;
    let slot = DEVICES.get(at).ok_or(Bypass::NotManaged)?;
    if let Some(managed) = slot.get() {
        return Ok(managed);
    }
    if UNMANAGED.load(Acquire) & (1 << at) != 0 {
        return Err(Bypass::NotManaged);
    }
    if SETTING_UP.replace(true) {
        return Err(Bypass::Nested);
    }
    let made = make_device(ordinal);
    SETTING_UP.set(false);
    match made {
        Ok(made) => Ok(slot.publish(made)),
        Err(NoDevice::Unmanaged) => {
            UNMANAGED.fetch_or(1 << at, AcqRel);
            Err(Bypass::NotManaged)
        }
        Err(NoDevice::Unknown) => Err(Bypass::NoContext),
    }
}

/// The device of an ordinal if it is in use.
pub(crate) fn device_in_use(ordinal: u32) -> Option<&'static ManagedDevice> {
    DEVICES.get(usize::try_from(ordinal).ok()?)?.get()
}

pub(crate) fn devices() -> impl Iterator<Item = &'static ManagedDevice> {
    DEVICES.iter().filter_map(Leaked::get)
}

/// Records that the process has a context on a device.
pub(crate) fn note_context(device: CUdevice) {
    let bit = u32::try_from(device).ok().and_then(|at| 1u64.checked_shl(at));
    CONTEXTS.fetch_or(bit.unwrap_or(0), Relaxed);
}

/// Whether the process has made a context on the device of an account.
pub(crate) fn has_context_of(account: &MemoryAccount<MemoryConnection>) -> bool {
    let contexts = CONTEXTS.load(Relaxed);
    let with_context = (0..).take(MAX_DEVICES).filter(|device| contexts & (1 << device) != 0);
    with_context
        .filter_map(|device| device_of(device).ok())
        .any(|managed| std::ptr::eq(managed.memory, account))
}

/// `cuInit`. The configuration is read here, as the driver reads the environment here too: no thread of a correct program changes it at the
/// same time. Later calls may come while another thread does.
pub(crate) fn initialise(real: impl FnOnce() -> CUresult) -> CUresult {
    guarded((), || _ = setup());
    let result = real();
    if result == CUresult::SUCCESS {
        INITIALISED.store(true, Release);
    }
    result
}

/// `Err` with the reason if nothing is governed in this process.
pub(crate) fn check_governed() -> Result<(), Bypass> {
    if FORKED.load(Acquire) {
        Err(Bypass::Forked)
    } else if setup().disabled {
        Err(Bypass::Disabled)
    } else {
        Ok(())
    }
}

/// Counts a bypassed call, in this process and on the report page.
#[cold]
pub(crate) fn count_bypass(reason: Bypass) {
    COUNTERS.bypass(reason);
    if reason != Bypass::Forked
        && let Some(managed) = only_device()
    {
        managed.device.link.count_bypass(reason);
    }
}

/// Whether this is the child of a process that had used the driver.
pub(crate) fn has_forked() -> bool {
    FORKED.load(Acquire)
}

/// Whether the process is known to see one device only. Does not call the driver.
pub(crate) fn sees_one_device() -> bool {
    DEVICE_COUNT.load(Relaxed) == 1
}

/// Queries the driver for the number of devices, once.
pub(crate) fn count_devices() {
    if DEVICE_COUNT.load(Relaxed) == 0 {
        DEVICE_COUNT.store(gpu::device_count().unwrap_or(0), Relaxed);
    }
}

/// In the child of a fork: nothing is governed any more if the parent had initialised the driver, which does not work in the child. Locks
/// of the hook may be held there for ever, also if the parent had no managed device. Only atomics and close().
fn after_fork() {
    channel_groups::after_fork();
    preempt::after_fork();
    accounts::after_fork();
    if INITIALISED.load(Acquire) {
        FORKED.store(true, Release);
    }
    for managed in devices() {
        FORKED.store(true, Release);
        managed.device.abandon();
        managed.device.link.close_in_child();
    }
}

/// Writes a line to the log, if there is one.
pub(crate) fn log(text: std::fmt::Arguments<'_>) {
    log::line(setup().log.as_ref(), text);
}
