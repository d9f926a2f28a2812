//! The backstop: a process whose groups cannot be had is held by the driver's lock (cuCheckpointProcessLock). It waits in its next
//! call of the driver, once what it has submitted is done.
//!
//! A program of its own makes the calls, `sluice hold --locks`: a driver that hangs hangs that one, and when this manager is killed it
//! lets everybody go. If it is killed, the next one does what it is told whoever did the rest.

use crate::channels::{Cause, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a process may take to finish what it has submitted. All controls of the GPU wait meanwhile.
const DRAIN: Duration = Duration::from_millis(1000);
/// How long an answer may take: the first one loads the driver.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long whoever makes the calls may take to end. One that is inside a driver that hangs does not, and is left behind.
const BURIAL: Duration = Duration::from_secs(1);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Who makes the calls; started when there is something to do.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    program: PathBuf,
    keeper: Option<Keeper>,
    /// Processes that are held, or may be: the next keeper is told, for it is to let them go when this manager is killed.
    held: BTreeSet<i32>,
}

#[derive(Debug)]
struct Keeper {
    /// `None`: it is buried.
    child: Option<Child>,
    line: BufReader<UnixStream>,
}

impl Locks {
    /// By this program, which is a `sluice`.
    pub(crate) fn by(program: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(State { program, keeper: None, held: BTreeSet::new() })))
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
    /// `holds`: whether the process is held once that is done.
    fn ask(&self, command: &str, holds: bool) -> Result<(), ControlFailure> {
        let ended = || sluice_sys::pidfd::has_ended(self.pidfd.as_fd());
        let mut state = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ended() {
            state.held.remove(&self.pid);
            return Err(ControlFailure::Gone);
        }
        let said = state.ask(command);
        // Who makes the locks may have ended with this one made, or not unmade.
        if said.is_err() || holds == (said.as_deref().ok() == Some("ok")) {
            state.held.insert(self.pid);
        } else {
            state.held.remove(&self.pid);
        }
        // The number may have been given to another while it was asked about; who holds nobody else by it lets go again.
        if ended() {
            state.held.remove(&self.pid);
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
        self.ask(&format!("lock {} {}", self.pid, DRAIN.as_millis()), true)
    }

    fn start(&mut self, _: &ContextHandles) -> Result<(), ControlFailure> {
        self.ask(&format!("unlock {}", self.pid), false)
    }
}

impl State {
    fn ask(&mut self, command: &str) -> io::Result<String> {
        if self.keeper.is_none() {
            let mut keeper = Keeper::start(&self.program)?;
            for pid in &self.held {
                keeper.ask(&format!("held {pid}")).inspect_err(|_| keeper.kill())?;
            }
            self.keeper = Some(keeper);
        }
        let Some(keeper) = &mut self.keeper else { return Err(io::ErrorKind::NotFound.into()) };
        let said = keeper.ask(command);
        if said.is_err()
            && let Some(mut keeper) = self.keeper.take()
        {
            keeper.kill();
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
        Ok(Self { child: Some(child), line: BufReader::new(ours) })
    }

    fn kill(&mut self) {
        let _ = self.child.as_mut().map(Child::kill);
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
        if let Some(child) = self.child.take() {
            bury(child);
        }
    }
}

/// Waits for the end of a child, for [`BURIAL`]; after that a thread of its own does.
fn bury(mut child: Child) {
    let deadline = Instant::now() + BURIAL;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let waits = move || drop(child.wait());
            // Without a thread it is left behind unburied.
            let _ = std::thread::Builder::new().name("sluice-burial".into()).spawn(waits);
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// Somebody who makes the locks, and writes down what he was told.
    fn locks(folder: &Path, script: &str) -> (Locks, PathBuf) {
        let (program, log) = (folder.join("keeper"), folder.join("log"));
        let script = script.replace("LOG", &log.display().to_string());
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (Locks::by(program), log)
    }

    fn of_ours(locks: &Locks) -> Box<dyn ChannelControl> {
        let pid = i32::try_from(std::process::id()).unwrap();
        locks.of(pid, sluice_sys::pidfd::open(pid).unwrap())
    }

    #[test]
    fn the_next_one_is_told_who_is_held() {
        let folder = tempfile::tempdir().unwrap();
        // It answers once, then ends.
        let script = r#"read line; echo "$line" >> LOG; echo ok; read line; case "$line" in held*|unlock*|lock*) echo "$line" >> LOG;; esac
            test -e LOG.second && { echo ok; while read line; do echo "$line" >> LOG; echo ok; done; }; touch LOG.second"#;
        let (locks, log) = locks(folder.path(), script);
        let (mut lock, handles) = (of_ours(&locks), Locks::handles(1));
        lock.stop(&handles).unwrap();
        assert!(lock.start(&handles).is_err(), "it ended over it");
        lock.start(&handles).unwrap();
        let pid = std::process::id();
        let expected = format!("lock {pid} 1000\nunlock {pid}\nheld {pid}\nunlock {pid}\n");
        assert_eq!(std::fs::read_to_string(log).unwrap(), expected);
    }

    #[test]
    fn one_that_does_not_end_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let script = "exec 2>/dev/null; while read line; do echo ok; done; n=0; while test -d LOG.d -a $n -lt 200; do n=$((n+1)); sleep 0.1; done; echo gone > LOG";
        let (locks, log) = locks(folder.path(), script);
        std::fs::create_dir(log.with_extension("d")).unwrap();
        let mut lock = of_ours(&locks);
        lock.stop(&Locks::handles(1)).unwrap();
        drop((lock, locks));
        assert!(!log.exists(), "it was waited for");
        std::fs::remove_dir(log.with_extension("d")).unwrap();
    }
}
