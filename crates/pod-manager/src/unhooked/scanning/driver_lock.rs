//! The driver's lock (cuCheckpointProcessLock): it stops a process of which the channel groups cannot be controlled. The process waits in
//! its next driver call, after its submitted work has ended.
//!
//! Lock helpers make the calls; docs/design/unhooked-processes.md describes what happens when one of them ends.

use super::lock_helper::LockHelper;
use crate::channel_groups::{Cause, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::ControlOp;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Limit for the end of a process's submitted work. All controls of the GPU wait during that time.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(1000);

/// The driver's locks of a manager. The helpers are started when they are needed.
#[derive(Clone, Debug)]
pub(crate) struct DriverLocks(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    program: PathBuf,
    /// Makes the calls.
    helper: Option<LockHelper>,
    /// Makes no calls, and unlocks the locked processes when its input ends.
    reserve: Option<LockHelper>,
    readiness: Readiness,
    /// Processes that are locked, or may be.
    locked: BTreeSet<i32>,
}

impl DriverLocks {
    /// Locks made by this program, which is a `sluice`.
    pub(crate) fn with_helper(program: PathBuf) -> Self {
        let (helper, reserve, readiness, locked) = (None, None, Readiness::NotLoaded, BTreeSet::new());
        Self(Arc::new(Mutex::new(State { program, helper, reserve, readiness, locked })))
    }

    /// Has the helper load the driver unless that has begun, or again if it has failed. Returns whether the driver is loaded. Loading takes
    /// seconds and no control may wait for it, so a thread does it.
    pub(crate) fn load(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.readiness == Readiness::NotLoaded {
            let locks = Arc::clone(&self.0);
            let program = state.program.clone();
            let load = move || {
                let loaded = LockHelper::start(&program).and_then(LockHelper::with_driver);
                let mut state = locks.lock().unwrap_or_else(PoisonError::into_inner);
                match loaded {
                    Ok(helper) => (state.helper, state.readiness) = (Some(helper), Readiness::Ready),
                    Err(why) => {
                        warn!("the driver's lock is not available: {why}");
                        state.readiness = Readiness::NotLoaded;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("sluice-lock".into()).spawn(load);
            // Without a thread the first lock loads the driver.
            state.readiness = if thread.is_ok() { Readiness::Loading } else { Readiness::Ready };
        }
        state.readiness == Readiness::Ready
    }

    /// Whether the driver is loaded.
    pub(crate) fn are_ready(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).readiness == Readiness::Ready
    }

    /// Controls that stop and start the process of `pidfd` by the driver's lock.
    pub(crate) fn control_of(&self, pid: i32, pidfd: OwnedFd) -> Box<dyn ChannelControl> {
        Box::new(Lock { locks: self.clone(), pid, pidfd })
    }
}

struct Lock {
    locks: DriverLocks,
    pid: i32,
    pidfd: OwnedFd,
}

impl Lock {
    /// Sends a command to the helper. `locks`: the command locks the process; otherwise it unlocks it.
    fn request(&self, command: &str, locks: bool) -> Result<(), ControlFailure> {
        let has_ended = || sluice_sys::pidfd::has_ended(self.pidfd.as_fd());
        let mut state = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        if has_ended() {
            state.locked.remove(&self.pid);
            return Err(ControlFailure::Gone);
        }
        if locks {
            state.tell_reserve(self.pid, true);
        }
        let answer = state.request(command);
        // A helper that ended during the command may have locked the process, or not unlocked it.
        if answer.is_err() || locks == (answer.as_deref().ok() == Some("ok")) {
            state.locked.insert(self.pid);
        } else {
            state.locked.remove(&self.pid);
            state.tell_reserve(self.pid, false);
        }
        // The process id may have been reused before the command: then another process was locked, and is unlocked.
        if has_ended() {
            state.locked.remove(&self.pid);
            let _ = state.request(&format!("unlock {}", self.pid));
            return Err(ControlFailure::Gone);
        }
        let fail = |cause, why| Err(ControlFailure::Failed(cause, why));
        match answer.as_deref() {
            Ok("ok") => Ok(()),
            Ok("timeout") => fail(
                Cause::Timeout,
                format!("process {} did not finish its work within {DRAIN_TIMEOUT:?}", self.pid),
            ),
            Ok(answer) => fail(Cause::Refused, format!("lock of process {}: {answer}", self.pid)),
            Err(error) => fail(Cause::Refused, format!("lock helper: {error}")),
        }
    }
}

impl ChannelControl for Lock {
    fn slice_us(&mut self, _: &ContextHandles) -> Option<u64> {
        None
    }

    fn switches(&mut self, _: &ContextHandles) -> Option<u32> {
        None
    }

    fn make(&mut self, _: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure> {
        match op {
            // The groups of a locked process keep the driver's time slice.
            ControlOp::SetSlice(_) => Ok(()),
            ControlOp::Disable => {
                self.request(&format!("lock {} {}", self.pid, DRAIN_TIMEOUT.as_millis()), true)
            }
            ControlOp::Enable => self.request(&format!("unlock {}", self.pid), false),
        }
    }
}

/// Whether the helper has loaded the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// It was not needed yet, or loading it failed.
    NotLoaded,
    /// A thread waits for it.
    Loading,
    /// It is loaded, or the first lock loads it.
    Ready,
}

impl State {
    /// Tells the reserve that a process will be locked, or is not locked any more. Replaces a reserve that has ended.
    fn tell_reserve(&mut self, pid: i32, is_locked: bool) {
        let word = if is_locked { "held" } else { "freed" };
        let tell = |reserve: &mut LockHelper, pid: i32| reserve.request(&format!("{word} {pid}")).is_ok();
        if self.reserve.as_mut().is_some_and(|reserve| tell(reserve, pid)) || !is_locked {
            return;
        }
        self.reserve = None;
        let Ok(mut reserve) = LockHelper::start(&self.program) else { return };
        if self.locked.iter().chain([&pid]).all(|pid| tell(&mut reserve, *pid)) {
            self.reserve = Some(reserve);
        }
    }

    fn request(&mut self, command: &str) -> io::Result<String> {
        if self.helper.is_none() {
            let mut helper = LockHelper::start(&self.program)?;
            for pid in &self.locked {
                helper.request(&format!("held {pid}")).inspect_err(|_| helper.kill())?;
            }
            self.helper = Some(helper);
        }
        let Some(helper) = &mut self.helper else { return Err(io::ErrorKind::NotFound.into()) };
        let answer = helper.request(command);
        if answer.is_err()
            && let Some(mut helper) = self.helper.take()
        {
            helper.kill();
        }
        answer
    }
}

#[cfg(test)]
mod tests;
