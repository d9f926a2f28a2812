//! What holds one program.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use serde_json::{Value, json};
use sluice_load::checkpoint;
use sluice_load::driver::Driver;
use sluice_nvrm::outside::Tenant;

use super::worker::{find, newest};
use super::{Arguments, By};

/// How long a program may take to finish what it has submitted before the driver's lock gives up.
const LOCK_MS: u32 = 5_000;

/// Holds a program.
pub(super) enum Grip {
    Groups(Tenant),
    Lock(Box<Driver>, i32, OwnedFd),
}

impl Grip {
    /// Takes hold of a program.
    pub(super) fn on(pid: i32, arguments: &Arguments) -> anyhow::Result<Self> {
        let groups = match arguments.by {
            By::Lock => None,
            By::Groups => Some(find(pid, arguments.simulated, newest(arguments.simulated))?),
            By::Either => find(pid, arguments.simulated, newest(arguments.simulated))
                .inspect_err(|why| eprintln!("sluice: {why:#}: trying the driver's lock"))
                .ok(),
        };
        Ok(match groups {
            Some(tenant) => {
                tenant.stop().with_context(|| format!("process {pid}"))?;
                Self::Groups(tenant)
            }
            None => {
                let driver = Driver::open()?;
                let process = sluice_sys::pidfd::open(pid).with_context(|| format!("process {pid}"))?;
                checkpoint::lock(&driver, pid, LOCK_MS).with_context(|| format!("process {pid}"))?;
                Self::Lock(Box::new(driver), pid, process)
            }
        })
    }

    /// For a script.
    pub(super) fn describe(&self) -> Value {
        match self {
            Self::Groups(tenant) => json!({
                "hold": "held", "by": "groups", "pid": tenant.pid(),
                "groups": tenant.groups().map(|group| json!({
                    "client": format!("{:#x}", group.client),
                    "group": format!("{:#x}", group.channel_group),
                    "channels": group.channels.len(),
                })).collect::<Vec<_>>(),
            }),
            Self::Lock(_, pid, _) => json!({ "hold": "held", "by": "lock", "pid": pid }),
        }
    }

    /// Whether the program has ended.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Groups(tenant) => tenant.has_ended(),
            Self::Lock(_, _, process) => sluice_sys::pidfd::has_ended(process.as_fd()),
        }
    }

    /// Lets it go on.
    pub(super) fn let_go(self) -> anyhow::Result<()> {
        match self {
            _ if self.has_ended() => Ok(()),
            Self::Groups(tenant) => tenant.start().with_context(|| format!("process {}", tenant.pid())),
            Self::Lock(driver, pid, _) => {
                checkpoint::unlock(&driver, pid).with_context(|| format!("process {pid}"))
            }
        }
    }
}
