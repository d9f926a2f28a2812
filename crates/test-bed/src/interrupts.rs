//! Requests to end: Ctrl-C for a program that has children, and the parent's end for a child.

use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd;

/// Time between two polls of a program that waits for others.
const PAUSE: Duration = Duration::from_millis(10);

/// SIGINT, SIGTERM and SIGHUP as a descriptor to poll, so that the process is not ended before it has cleaned up. Children
/// inherit the signal mask; children of this crate lift it in [`end_with_parent`].
#[derive(Debug)]
pub struct Interrupts(SignalFd);

impl Interrupts {
    /// Blocks the signals from here on. Call it before other threads start: they inherit the mask.
    pub fn block() -> anyhow::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        signals.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&signals, flags).context("cannot poll signals")?))
    }

    /// Fails, naming the signal, if one is pending.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.0.read_signal() {
            Ok(Some(signal)) => {
                let name =
                    i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
                bail!("interrupted by {}", name.map_or("a signal", Signal::as_str))
            }
            Ok(None) => Ok(()),
            Err(why) => Err(why).context("cannot read pending signals"),
        }
    }

    /// Sleeps for 10 ms, then the same as [`Interrupts::check`].
    pub fn pause(&self) -> anyhow::Result<()> {
        thread::sleep(PAUSE);
        self.check()
    }
}

/// Follows the flag `--parent PID` of [`Process::command`](crate::Process::command): the kernel kills this process when its parent
/// ends, however the parent ends. Signals that the parent had blocked are unblocked. Fails if the parent has ended already.
pub fn end_with_parent(parent: Option<i32>) -> anyhow::Result<()> {
    let Some(parent) = parent else { return Ok(()) };
    SigSet::all().thread_unblock().context("cannot unblock signals")?;
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot ask to end with the parent")?;
    if unistd::getppid().as_raw() != parent {
        bail!("the parent process {parent} has ended");
    }
    Ok(())
}
