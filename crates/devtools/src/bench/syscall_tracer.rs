//! Counts the system calls of another process's main thread by ptrace, so that the count does not depend on that process.

use anyhow::{Context, bail};
use nix::libc::{SYS_getppid, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// A traced and stopped thread. [`SyscallTracer::count`] resumes it.
#[derive(Debug)]
pub(crate) struct SyscallTracer(Pid);

impl SyscallTracer {
    /// Stops and traces the main thread of `pid`, a child of this process, if tracing is permitted. Other threads are not traced.
    pub(crate) fn attach(pid: i32) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(pid);
        ptrace::attach(pid).context("tracing is not permitted")?;
        waitpid(pid, None).context("the traced process did not stop")?;
        ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD).context("cannot trace system calls")?;
        Ok(Self(pid))
    }

    /// Lets it run until it has made `blocks` pairs of marker calls (`getppid`), then detaches. Returns the number of system
    /// calls within each pair.
    pub(crate) fn count(self, blocks: usize) -> anyhow::Result<Vec<u64>> {
        let mut counter = Counter::default();
        let (mut entering, mut deliver) = (true, None);
        while counter.blocks.len() < blocks {
            ptrace::syscall(self.0, deliver.take()).context("cannot resume the traced process")?;
            match self.next_stop()? {
                WaitStatus::PtraceSyscall(_) => {
                    if entering {
                        counter.entered(number(self.0)?);
                    }
                    entering = !entering;
                }
                WaitStatus::Stopped(_, signal) => deliver = (signal != Signal::SIGSTOP).then_some(signal),
                _ => {}
            }
        }
        ptrace::detach(self.0, None).context("cannot detach from the traced process")?;
        Ok(counter.blocks)
    }

    /// Waits for the next stop. An exit is not reaped here, so that the pid stays reserved until the owner waits for it.
    fn next_stop(&self) -> anyhow::Result<WaitStatus> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.0), flags).context("cannot wait for the traced process")? {
            ended @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {
                bail!("the traced process ended: {ended:?}")
            }
            _ => waitpid(self.0, None).context("cannot wait for the traced process"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn number(pid: Pid) -> anyhow::Result<c_long> {
    let registers = ptrace::getregs(pid).context("cannot read the traced process's registers")?;
    Ok(registers.orig_rax.cast_signed())
}

#[cfg(not(target_arch = "x86_64"))]
fn number(_pid: Pid) -> anyhow::Result<c_long> {
    bail!("system calls can be counted on x86-64 only")
}

/// Counts the calls between two markers.
#[derive(Debug, Default)]
struct Counter {
    open: Option<u64>,
    blocks: Vec<u64>,
}

impl Counter {
    fn entered(&mut self, number: c_long) {
        match (number == SYS_getppid, &mut self.open) {
            (true, Some(count)) => {
                self.blocks.push(*count);
                self.open = None;
            }
            (true, None) => self.open = Some(0),
            (false, Some(count)) => *count += 1,
            (false, None) => {}
        }
    }
}

#[cfg(test)]
mod tests;
