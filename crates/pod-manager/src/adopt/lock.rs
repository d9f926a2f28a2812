//! The backstop: a process whose groups cannot be had is held by the driver's lock (cuCheckpointProcessLock). It waits in its next
//! call of the driver, once what it has submitted is done.
//!
//! A program of its own makes the calls, `sluice hold --locks`: a driver that hangs hangs that one, and when this manager is killed it
//! lets everybody go. If it is killed, the next one does what it is told whoever did the rest.

use crate::channels::{Cause, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a process may take to finish what it has submitted. All controls of the GPU wait meanwhile.
const DRAIN: Duration = Duration::from_millis(1000);
/// How long an answer may take: the first one loads the driver.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who makes the calls; started when there is something to do.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    program: PathBuf,
    keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    child: Child,
    line: BufReader<UnixStream>,
}

impl Locks {
    /// By this program, which is a `sluice`.
    pub(crate) fn by(program: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(State { program, keeper: None })))
    }

    /// What stands for the one group that such a process seems to have: no client of the driver's has this handle.
    pub(crate) fn handles(pid: i32) -> ContextHandles {
        let channel_group = pid.unsigned_abs();
        ContextHandles { descriptor: 0, client: 0, subdevice: 0, channel_group, channels: Vec::new() }
    }

    /// What stops and starts a process, which `pidfd` stands for.
    pub(crate) fn of(&self, pid: i32, pidfd: OwnedFd) -> Box<dyn ChannelControl> {
        Box::new(Lock { locks: self.clone(), pid, pidfd })
    }
}

struct Lock {
    locks: Locks,
    pid: i32,
    pidfd: OwnedFd,
}

impl Lock {
    fn ask(&self, command: &str) -> Result<(), ControlFailure> {
        let ended = || sluice_sys::pidfd::has_ended(self.pidfd.as_fd());
        if ended() {
            return Err(ControlFailure::Gone);
        }
        let mut state = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = state.ask(command);
        // The number may have been given to another while it was asked about; who holds nobody else by it lets go again.
        if ended() {
            let _ = state.ask(&format!("unlock {}", self.pid));
            return Err(ControlFailure::Gone);
        }
        match said.as_deref() {
            Ok("ok") => Ok(()),
            Ok("timeout") => {
                let why = format!("process {} did not finish its work within {DRAIN:?}", self.pid);
                Err(ControlFailure::Failed(Cause::Timeout, why))
            }
            Ok(said) => {
                Err(ControlFailure::Failed(Cause::Refused, format!("lock of process {}: {said}", self.pid)))
            }
            Err(error) => {
                Err(ControlFailure::Failed(Cause::Refused, format!("who makes the locks: {error}")))
            }
        }
    }
}

impl ChannelControl for Lock {
    /// It has none that could be set: it runs with the driver's.
    fn set_slice(&mut self, _: &ContextHandles, _: u64) -> Result<(), ControlFailure> {
        Ok(())
    }

    fn stop(&mut self, _: &ContextHandles) -> Result<(), ControlFailure> {
        self.ask(&format!("lock {} {}", self.pid, DRAIN.as_millis()))
    }

    fn start(&mut self, _: &ContextHandles) -> Result<(), ControlFailure> {
        self.ask(&format!("unlock {}", self.pid))
    }
}

impl State {
    fn ask(&mut self, command: &str) -> io::Result<String> {
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::start(&self.program)?);
        }
        let Some(keeper) = &mut self.keeper else { return Err(io::ErrorKind::NotFound.into()) };
        let said = keeper.ask(command);
        if said.is_err()
            && let Some(mut keeper) = self.keeper.take()
        {
            let _ = keeper.child.kill();
            let _ = keeper.child.wait();
        }
        said
    }
}

impl Keeper {
    fn start(program: &PathBuf) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let output = OwnedFd::from(theirs.try_clone()?);
        // What ends this manager's group is not to end it before it has let everybody go.
        let child = Command::new(program)
            .args(["hold", "--locks"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .process_group(0)
            .spawn()?;
        Ok(Self { child, line: BufReader::new(ours) })
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.line.get_mut(), "{command}")?;
        let mut said = String::new();
        if self.line.read_line(&mut said)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(said.trim_end().to_owned())
    }
}

impl Drop for Keeper {
    /// It ends by itself when its input ends, and lets everybody go before.
    fn drop(&mut self) {
        let _ = self.line.get_ref().shutdown(std::net::Shutdown::Write);
        let _ = self.child.wait();
    }
}
