//! What runs when this library is loaded, in the child of a fork, and when the configuration or a device is first needed.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use sluice_comm::Name;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::config::{Config, Managers, NODE_SETTINGS_FILE, setting};
use sluice_hook_core::deadline_polling;
use sluice_hook_core::device::{Device, Settings};
use sluice_sys::step_log::StepLog;

use super::{CAPTURES, COUNTERS, ManagedDevice, accounts};
use crate::clock::{HostClock, STEPS};
use crate::descriptor::Descriptor;
use crate::gpu::{self, Gpu};
use crate::leaked::Leaked;
use crate::link::{Address, ClientIdentity, TokenConnection};
use crate::{hold_kernel, log, symbols};

/// Runs when the loader has mapped this library, before or after other libraries' constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    symbols::prepare();
    // SAFETY: the handler only stores to atomics and closes descriptors, which is allowed in the child of a fork.
    let _registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// The child has one thread, no tracker, and the parent's descriptors. If the parent had used the CUDA driver, the driver does not work
/// in the child, and neither does the hook. If it had not, there is nothing to undo and the child starts afresh.
extern "C" fn in_child() {
    super::after_fork();
}

static SETUP: Leaked<Setup> = Leaked::none();

/// The configuration and what follows from it.
pub(super) struct Setup {
    pub(super) config: Config,
    pub(super) name: Name,
    pub(super) log: Option<Descriptor>,
    pub(super) disabled: bool,
}

/// Where a device's manager listens; `None` if it has none.
pub(super) fn manager_address(managers: &Managers, ordinal: usize, uuid: &[u8; 16]) -> Option<Address> {
    match managers {
        Managers::Socket(path) => Some(Address::Unix(path.clone())),
        Managers::Tcp(list) => list.get(ordinal).map(|(ip, port)| Address::Tcp(ip.clone(), *port)),
        Managers::Directory { path, explicit } => {
            let uuid = format_uuid(uuid);
            let named = |prefix: &str| -> PathBuf { path.join(format!("{prefix}{uuid}.sock")) };
            let candidates = [named("GPU-"), named("MIG-"), named("")];
            let found = candidates.iter().find(|path| path.exists()).cloned();
            let [usual, ..] = candidates;
            found.or_else(|| explicit.then_some(usual)).map(Address::Unix)
        }
    }
}

/// A UUID as NVIDIA's tools write it.
fn format_uuid(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}

/// Why a device was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDevice {
    /// The driver does not report the device: it is not initialised yet, or has no such device.
    Unknown,
    /// The device has no manager, and will not get one in this process.
    Unmanaged,
}

/// A device with connections to its manager.
pub(super) fn make_device(ordinal: CUdevice) -> Result<ManagedDevice, NoDevice> {
    let setup = setup();
    let uuid = gpu::device_uuid(ordinal).ok_or(NoDevice::Unknown)?;
    let at = usize::try_from(ordinal).map_err(|_| NoDevice::Unknown)?;
    let ordinal = u32::try_from(ordinal).map_err(|_| NoDevice::Unknown)?;
    let address = manager_address(&setup.config.managers, at, &uuid).ok_or(NoDevice::Unmanaged)?;
    let identity = ClientIdentity { name: setup.name, ordinal, uuid };
    super::log(format_args!("device {ordinal}: manager={address:?} client={:?}", setup.name.as_str()));
    let by_cpus = || deadline_polling::around_ns(std::thread::available_parallelism().map_or(1, usize::from));
    let polling_ns = setup.config.busy_poll_us.map_or_else(by_cpus, |us| us * 1000);
    let settings = Settings {
        idle_ns: setup.config.idle_us * 1000,
        quantile: setup.config.quantile,
        fail_closed: setup.config.fail_closed,
        hold_kernels: setup.config.hold_kernels,
        polling_ns,
        ..Settings::default()
    };
    // The connection may be NVML's, which does not know the device's number.
    let memory = accounts::of_gpu(&address, &identity).ok_or(NoDevice::Unmanaged)?;
    memory.link.set_ordinal(ordinal);
    let token = TokenConnection::new(address, identity, memory, polling_ns);
    Ok(ManagedDevice {
        device: Device::new(ordinal, (Gpu::default(), token, HostClock), (&CAPTURES, &COUNTERS), settings),
        memory,
        ordinal,
        active_hold: hold_kernel::ActiveHold::none(),
        changing_limit: Mutex::new(()),
        tracked: AtomicBool::new(false),
        next_start_ns: AtomicU64::new(0),
    })
}

pub(super) fn setup() -> &'static Setup {
    SETUP.get().unwrap_or_else(set_up)
}

/// Reads the configuration. If two threads do it at once, the first result stays.
#[cold]
fn set_up() -> &'static Setup {
    let node = node_settings();
    let environment = |name: &str| std::env::var(name).ok();
    let (config, mistakes) = Config::read(|name| setting(node.as_deref(), name, environment));
    // This library has a copy of the standard library of its own: the program's own panic hook is not touched.
    std::panic::set_hook(Box::new(|_| {}));
    let log_file = config.log.as_deref().and_then(log::open);
    for mistake in mistakes {
        log::line(log_file.as_ref(), format_args!("{mistake}"));
    }
    if let Some(steps) = config.hand_off_steps.as_deref().and_then(|path| StepLog::open(path).ok()) {
        STEPS.publish(steps);
    }
    let name = config.client.clone().unwrap_or_else(host_name);
    let disabled = config.disabled || has_disable_file(&config.managers);
    SETUP.publish(Setup { name: Name::shortened(&name), config, log: log_file, disabled })
}

/// The settings of the node, from the folder of this library: the node agent mounts it, and a pod cannot write there.
fn node_settings() -> Option<String> {
    let folder = symbols::own_path()?.parent()?.to_owned();
    std::fs::read_to_string(folder.join(NODE_SETTINGS_FILE)).ok()
}

/// Whether the kill switch exists as a file beside the sockets.
fn has_disable_file(managers: &Managers) -> bool {
    let directory: Option<&Path> = match managers {
        Managers::Socket(path) => path.parent(),
        Managers::Directory { path, .. } => Some(path),
        Managers::Tcp(_) => None,
    };
    directory.is_some_and(|directory| directory.join("disable").exists())
}

fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for its length; one byte is kept for the NUL.
    let got = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let name = std::ffi::CStr::from_bytes_until_nul(&buffer).ok().and_then(|name| name.to_str().ok());
    match name {
        Some(name) if got == 0 && !name.is_empty() => name.to_owned(),
        _ => "unnamed".to_owned(),
    }
}
