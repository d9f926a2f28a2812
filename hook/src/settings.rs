//! The configuration of this process, which is read when it is first needed, and the log that it names.

use std::path::Path;

use sluice_comm::Name;
use sluice_hook_core::config::{Config, Managers, NODE_SETTINGS_FILE, setting};
use sluice_hook_core::outcome::Bypass;
use sluice_sys::step_log::StepLog;

use crate::clock::STEPS;
use crate::descriptor::Descriptor;
use crate::leaked::Leaked;
use crate::{fork, log, symbols};

static SETUP: Leaked<Setup> = Leaked::none();

/// The configuration and what follows from it.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) name: Name,
    pub(crate) log: Option<Descriptor>,
    pub(crate) disabled: bool,
}

pub(crate) fn setup() -> &'static Setup {
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

/// `Err` with the reason if nothing is governed in this process.
pub(crate) fn check_governed() -> Result<(), Bypass> {
    if fork::has_forked() {
        Err(Bypass::Forked)
    } else if setup().disabled {
        Err(Bypass::Disabled)
    } else {
        Ok(())
    }
}

/// Writes a line to the log, if there is one.
pub(crate) fn log(text: std::fmt::Arguments<'_>) {
    log::line(setup().log.as_ref(), text);
}
