//! Short children: forked ones, which inherit the driver's state, and programs of their own.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::Failure;
use crate::driver::call;
use crate::session::Session;

/// Forks a child that makes some driver calls and ends. The driver does not work in such a child, but each call must return.
pub(crate) fn fork_one(session: &Session) -> Result<(), Failure> {
    // SAFETY: the child calls the driver, whose functions must return in such a child, and `_exit`. It uses no lock of Rust's library, and
    // the C library makes its allocator usable in a child.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            let mut memory = 0;
            // SAFETY: the driver writes one address to a local.
            if unsafe { call!(session.driver(), cuMemAlloc_v2(&raw mut memory, 4096)) }.is_ok() {
                // SAFETY: just allocated.
                let _ = unsafe { call!(session.driver(), cuMemFree_v2(memory)) };
            }
            // SAFETY: it has no preconditions and does not return.
            unsafe { nix::libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            other => Err(Failure::Child(format!("a forked child ended with {other:?}"))),
        },
        Err(why) => Err(Failure::Child(format!("cannot fork: {why}"))),
    }
}

/// Starts the configured program and waits for its end.
pub(crate) fn start_one(program: &[OsString], seed: u64) -> Result<(), Failure> {
    let Some((program, arguments)) = program.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).args(["--seed", &seed.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Child(format!("{command:?} ended with {status}"))),
        Err(why) => Err(Failure::Child(format!("cannot start {command:?}: {why}"))),
    }
}
