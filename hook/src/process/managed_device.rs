//! A device with a manager.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use sluice_driver_api::types::CUdevice;
use sluice_hook_core::deadline_polling;
use sluice_hook_core::device::{Device, Settings};
use sluice_hook_core::memory::MemoryAccount;

use crate::active_hold::ActiveHold;
use crate::captures::CAPTURES;
use crate::clock::HostClock;
use crate::counters::COUNTERS;
use crate::gpu_driver::{Gpu, GpuDevice};
use crate::group_recovery::RecoveryDevice;
use crate::link::{Address, ClientIdentity, MemoryConnection, TokenConnection};
use crate::settings::{self, setup};
use crate::{gpu, memory_accounts, preempt};

/// One device with its connections to the manager.
pub(crate) struct ManagedDevice {
    pub(crate) device: GpuDevice,
    /// Shared with NVML's device of the same GPU.
    pub(crate) memory: &'static MemoryAccount<MemoryConnection>,
    pub(crate) ordinal: u32,
    pub(crate) active_hold: ActiveHold,
    /// Held while a limit of a context changes that takes memory.
    pub(crate) changing_limit: Mutex<()>,
    /// Whether the tracker runs.
    pub(crate) tracked: AtomicBool,
    /// When the tracker may be started again after a failure.
    pub(crate) next_start_ns: AtomicU64,
}

/// Why a device was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDevice {
    /// The driver does not report the device: it is not initialised yet, or has no such device.
    Unknown,
    /// The device has no manager, and will not get one in this process.
    Unmanaged,
}

impl ManagedDevice {
    /// A device with connections to its manager.
    pub(super) fn new(ordinal: CUdevice) -> Result<Self, NoDevice> {
        let setup = setup();
        let uuid = gpu::device_uuid(ordinal).ok_or(NoDevice::Unknown)?;
        let at = usize::try_from(ordinal).map_err(|_| NoDevice::Unknown)?;
        let ordinal = u32::try_from(ordinal).map_err(|_| NoDevice::Unknown)?;
        let address = Address::of_manager(&setup.config.managers, at, &uuid).ok_or(NoDevice::Unmanaged)?;
        let identity = ClientIdentity { name: setup.name, ordinal, uuid };
        settings::log(format_args!("device {ordinal}: manager={address:?} client={:?}", setup.name.as_str()));
        let by_cpus =
            || deadline_polling::around_ns(std::thread::available_parallelism().map_or(1, usize::from));
        let polling_ns = setup.config.busy_poll_us.map_or_else(by_cpus, |us| us * 1000);
        let settings = Settings {
            idle_ns: setup.config.idle_us * 1000,
            quantile: setup.config.quantile,
            fail_closed: setup.config.fail_closed,
            hold_kernels: setup.config.hold_kernels,
            polling_ns,
            ..Settings::default()
        };
        let memory = memory_accounts::of_gpu(&address, &identity).ok_or(NoDevice::Unmanaged)?;
        let token = TokenConnection::new(address, identity, memory, polling_ns);
        Ok(Self {
            device: Device::new(
                ordinal,
                (Gpu::default(), token, HostClock),
                (&CAPTURES, &COUNTERS),
                settings,
            ),
            memory,
            ordinal,
            active_hold: ActiveHold::none(),
            changing_limit: Mutex::new(()),
            tracked: AtomicBool::new(false),
            next_start_ns: AtomicU64::new(0),
        })
    }

    /// The device is in use from here on: its connections, and the parts that only know its number, find it.
    pub(super) fn introduce(&'static self) {
        self.device.link.set_device(&self.device);
        preempt::introduce_link(self.ordinal, &self.device.link);
    }
}

impl RecoveryDevice for GpuDevice {
    fn lose_silent_manager(&self) -> bool {
        Self::lose_silent_manager(self)
    }

    fn wake_tracker(&self) {
        Self::wake_tracker(self);
    }
}
