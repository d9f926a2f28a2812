//! Ends that come from outside: Ctrl-C for a program that has children, and the parent's end for a child.

use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd;

/// A moment, in programs that wait for others: what they notice can be this late.
const PAUSE: Duration = Duration::from_millis(10);

/// SIGINT, SIGTERM and SIGHUP as something to look at, instead of an end in the middle of things. Children inherit the mask;
/// ours lift it in [`end_with_parent`].
#[derive(Debug)]
pub(crate) struct Interrupts(SignalFd);

impl Interrupts {
    /// Holds the signals back from here on. Call it before other threads start.
    pub(crate) fn hold() -> anyhow::Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block().context("cannot hold signals back")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&signals, flags).context("cannot watch for signals")?))
    }

    /// Fails if one of the signals has come.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
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

    /// Lets a moment pass, then the same as [`Interrupts::check`].
    pub(crate) fn pause(&self) -> anyhow::Result<()> {
        thread::sleep(PAUSE);
        self.check()
    }
}

/// Has the kernel kill this process when its parent ends, however the parent ends. Signals that the parent held back come
/// through again.
///
/// # Errors
/// If the parent has gone already.
pub(crate) fn end_with_parent(parent: i32) -> anyhow::Result<()> {
    SigSet::all().thread_unblock().context("cannot let signals through")?;
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot ask to end with the parent")?;
    if unistd::getppid().as_raw() != parent {
        bail!("process {parent} has ended, which this one was to end with");
    }
    Ok(())
}
