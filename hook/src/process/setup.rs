//! The configuration of this process, read when it is first needed, and the address of a device's manager.

use std::path::{Path, PathBuf};

use sluice_comm::Name;
use sluice_hook_core::config::{Config, Managers};

use crate::descriptor::Descriptor;
use crate::leaked::Leaked;
use crate::link::Address;
use crate::log;

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

/// The configuration of this process.
pub(super) fn setup() -> &'static Setup {
    SETUP.get().unwrap_or_else(set_up)
}

/// Reads the configuration. If two threads do it at once, the first result stays.
#[cold]
fn set_up() -> &'static Setup {
    let (config, mistakes) = Config::read(|name| std::env::var(name).ok());
    // This library has a copy of the standard library of its own: the program's own panic hook is not touched.
    std::panic::set_hook(Box::new(|_| {}));
    let log_file = config.log.as_deref().and_then(log::open);
    for mistake in mistakes {
        log::line(log_file.as_ref(), format_args!("{mistake}"));
    }
    let name = config.client.clone().unwrap_or_else(host_name);
    let disabled = config.disabled || has_disable_file(&config.managers);
    SETUP.publish(Setup { name: Name::shortened(&name), config, log: log_file, disabled })
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
