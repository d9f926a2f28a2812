//! What holds one program.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use serde_json::{Value, json};
use sluice_load::checkpoint;
use sluice_load::driver::Driver;

use super::program::Program;
use super::{Arguments, By};

/// How long a program may take to finish what it has submitted before the driver's lock gives up.
const LOCK_MS: u32 = 5_000;

/// Holds a program.
pub(super) enum Grip {
    Groups(Program),
    Lock(Box<Driver>, i32, OwnedFd),
}

impl Grip {
    /// Takes hold of a program.
    pub(super) fn on(pid: i32, arguments: &Arguments) -> anyhow::Result<Self> {
        let groups = || {
            let mut program = Program::find(pid, arguments.simulated)?;
            program.stop().with_context(|| format!("process {pid}"))?;
            Ok(Self::Groups(program))
        };
        let lock = || {
            let driver = Driver::open()?;
            let process = sluice_sys::pidfd::open(pid).with_context(|| format!("process {pid}"))?;
            checkpoint::lock(&driver, pid, LOCK_MS).with_context(|| format!("process {pid}"))?;
            Ok(Self::Lock(Box::new(driver), pid, process))
        };
        by(arguments.by, groups, lock)
    }

    /// Takes hold of what the program has made meanwhile.
    pub(super) fn search_again(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Groups(program) => program.search_again(),
            // The driver's lock holds the process, whatever it makes.
            Self::Lock(..) => Ok(()),
        }
    }

    /// For a script.
    pub(super) fn describe(&self) -> Value {
        match self {
            Self::Groups(program) => json!({
                "hold": "held", "by": "groups", "pid": program.pid(),
                "groups": program.groups().into_iter().map(|group| json!({
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
            Self::Groups(program) => program.has_ended(),
            Self::Lock(_, _, process) => sluice_sys::pidfd::has_ended(process.as_fd()),
        }
    }

    /// Lets it go on.
    pub(super) fn let_go(self) -> anyhow::Result<()> {
        match self {
            _ if self.has_ended() => Ok(()),
            Self::Groups(mut program) => {
                program.start().with_context(|| format!("process {}", program.pid()))
            }
            Self::Lock(driver, pid, _) => {
                checkpoint::unlock(&driver, pid).with_context(|| format!("process {pid}"))
            }
        }
    }
}

/// By channel groups, by the driver's lock, or by the lock where groups fail: whether they are not found or not stopped.
fn by<T>(
    by: By,
    groups: impl FnOnce() -> anyhow::Result<T>,
    lock: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match by {
        By::Lock => lock(),
        By::Groups => groups(),
        By::Either => groups().or_else(|why| {
            eprintln!("sluice: {why:#}: trying the driver's lock");
            lock()
        }),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn where_groups_fail_the_lock_is_tried_if_either_will_do() {
        assert_eq!(by(By::Either, || Ok("groups"), || Ok("lock")).unwrap(), "groups");
        assert_eq!(by(By::Either, || bail!("not stopped"), || Ok("lock")).unwrap(), "lock");
        let both = by::<&str>(By::Either, || bail!("not stopped"), || bail!("not locked"));
        assert_eq!(both.unwrap_err().to_string(), "not locked");
        assert_eq!(
            by(By::Groups, || bail!("not stopped"), || Ok("lock")).unwrap_err().to_string(),
            "not stopped"
        );
        assert_eq!(by(By::Lock, || Ok("groups"), || Ok("lock")).unwrap(), "lock");
    }
}
