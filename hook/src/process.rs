//! The devices and the allocations of this process.
//!
//! Devices are made when first needed and never freed. In the child of a fork one flag is set, after which every call bypasses.

mod managed_device;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::allocations::AllocationTable;
use sluice_hook_core::lock;
use sluice_hook_core::memory::MemoryAccount;
use sluice_hook_core::outcome::Bypass;

use crate::gpu::{self, MAX_DEVICES};
use crate::guard::guarded;
use crate::leaked::Leaked;
use crate::link::MemoryConnection;
use crate::settings::{self, setup};
use crate::{counters, fork};
pub(crate) use managed_device::ManagedDevice;
use managed_device::NoDevice;

static ALLOCATIONS: Mutex<AllocationTable> = Mutex::new(AllocationTable::new());
static DEVICES: [Leaked<ManagedDevice>; MAX_DEVICES] = [const { Leaked::none() }; MAX_DEVICES];
/// The device, if the process sees only one and it is managed.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
static ONLY_DEVICE: Leaked<ManagedDevice> = Leaked::none();
/// Bit n: the process has made a context on device n.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);
/// Bit n: device n has no manager.
static UNMANAGED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SETTING_UP: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn allocations() -> MutexGuard<'static, AllocationTable> {
    lock(&ALLOCATIONS)
}

/// The one managed device of a process that sees one device and has launched on it.
#[inline]
pub(crate) fn only_device() -> Option<&'static ManagedDevice> {
    ONLY_DEVICE.get()
}

/// The process sees one device, which is ready for launches.
pub(crate) fn set_only_device(managed: &'static ManagedDevice) {
    ONLY_DEVICE.share(managed);
    counters::count_bypasses_on(managed.device.link.report_page());
}

/// The device that a call of this thread concerns, if it is in use.
pub(crate) fn device_for_call() -> Option<&'static ManagedDevice> {
    if fork::has_forked() {
        return None;
    }
    only_device().or_else(|| device_in_use(u32::try_from(gpu::current_device()?).ok()?))
}

/// The managed device of the calling thread's context.
pub(crate) fn current_device() -> Result<&'static ManagedDevice, Bypass> {
    settings::check_governed()?;
    match only_device() {
        Some(managed) => Ok(managed),
        None => device_of(gpu::current_device().ok_or(Bypass::NoContext)?),
    }
}

/// The device of an ordinal, with its manager.
pub(crate) fn device_of(ordinal: CUdevice) -> Result<&'static ManagedDevice, Bypass> {
    settings::check_governed()?;
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
    let made = ManagedDevice::new(ordinal);
    SETTING_UP.set(false);
    match made {
        Ok(made) => {
            let managed = slot.publish(made);
            managed.introduce();
            Ok(managed)
        }
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
        fork::note_initialised();
    }
    result
}

/// Makes the trackers of all devices check for changed announcements.
pub(crate) fn wake_trackers() {
    devices().for_each(|managed| managed.device.wake_tracker());
}

/// In the child of a fork: abandons the parent's devices. Only atomics and close().
pub(crate) fn after_fork() {
    fork::after_fork(devices().next().is_some());
    for managed in devices() {
        managed.device.abandon();
        managed.device.link.close_in_child();
    }
}
