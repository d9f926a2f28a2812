//! The backstop: a process whose groups cannot be had is held by the driver's lock (cuCheckpointProcessLock). It waits in its next
//! call of the driver, once what it has submitted is done.
//!
//! A program of its own makes the calls, `sluice hold --locks`: a driver that hangs hangs that one, and when this manager is killed it
//! lets everybody go, and so does a second one that does nothing else. If it is killed, the next one does what it is told whoever did the
//! rest.

use super::keeper::Keeper;
use crate::channels::{Cause, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How long a process may take to finish what it has submitted. All controls of the GPU wait meanwhile.
const DRAIN: Duration = Duration::from_millis(1000);

/// Who makes the calls; started when there is something to do.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    program: PathBuf,
    keeper: Option<Keeper>,
    /// Makes no calls, and lets everybody go at the end as the keeper does: either may be killed with this manager.
    guard: Option<Keeper>,
    readiness: Readiness,
    /// Processes that are held, or may be: the next keeper is told, for it is to let them go when this manager is killed.
    held: BTreeSet<i32>,
}

impl Locks {
    /// By this program, which is a `sluice`.
    pub(crate) fn by(program: PathBuf) -> Self {
        let (keeper, guard, readiness, held) = (None, None, Readiness::NotYet, BTreeSet::new());
        Self(Arc::new(Mutex::new(State { program, keeper, guard, readiness, held })))
    }

    /// Whether whoever makes the calls has loaded the driver. That takes seconds, for which no control is to wait: it is done on a thread
    /// of its own, and again the next time this is asked if it came to nothing.
    pub(crate) fn are_ready(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.readiness == Readiness::NotYet {
            let locks = Arc::clone(&self.0);
            let program = state.program.clone();
            let load = move || {
                let loaded = Keeper::start(&program).and_then(Keeper::with_driver);
                let mut state = locks.lock().unwrap_or_else(PoisonError::into_inner);
                match loaded {
                    Ok(keeper) => (state.keeper, state.readiness) = (Some(keeper), Readiness::Ready),
                    Err(why) => {
                        warn!("the driver's lock is not to be had: {why}");
                        state.readiness = Readiness::NotYet;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("sluice-lock".into()).spawn(load);
            // Without a thread it is loaded when the first lock is made.
            state.readiness = if thread.is_ok() { Readiness::Loading } else { Readiness::Ready };
        }
        state.readiness == Readiness::Ready
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
        if holds {
            state.tell_guard(self.pid, true);
        }
        let said = state.ask(command);
        // Who makes the locks may have ended with this one made, or not unmade.
        if said.is_err() || holds == (said.as_deref().ok() == Some("ok")) {
            state.held.insert(self.pid);
        } else {
            state.held.remove(&self.pid);
            state.tell_guard(self.pid, false);
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

/// Whether the driver is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// Nobody has needed it, or it could not be.
    NotYet,
    /// A thread waits for it.
    Loading,
    /// It is, or is when the first lock is made.
    Ready,
}

impl State {
    /// Tells the guard of a process that will be held, or is not any more. A guard that has ended is replaced.
    fn tell_guard(&mut self, pid: i32, holds: bool) {
        let told = |guard: &mut Keeper, word: &str, pid: i32| guard.ask(&format!("{word} {pid}")).is_ok();
        let word = if holds { "held" } else { "freed" };
        if self.guard.as_mut().is_some_and(|guard| told(guard, word, pid)) || !holds {
            return;
        }
        self.guard = None;
        let Ok(mut guard) = Keeper::start(&self.program) else { return };
        if self.held.iter().chain([&pid]).all(|pid| told(&mut guard, "held", *pid)) {
            self.guard = Some(guard);
        }
    }

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

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let patience = std::time::Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(std::time::Instant::now() < patience, "waited for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_waits_for_the_driver_to_be_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"while read line; do echo "$line" >> LOG; while test "$line" = open -a ! -e LOG.go; do sleep 0.01; done; echo ok; done"#;
        let (locks, log) = locks(folder.path(), script);
        assert!(!locks.are_ready());
        until("it to be asked", || log.exists());
        assert!(!locks.are_ready(), "it is loading");
        std::fs::write(log.with_extension("go"), "").unwrap();
        until("it to be ready", || locks.are_ready());
        of_ours(&locks).stop(&Locks::handles(1)).unwrap();
        let pid = std::process::id();
        // The guard is told before.
        assert_eq!(std::fs::read_to_string(log).unwrap(), format!("open\nheld {pid}\nlock {pid} 1000\n"));
    }

    #[test]
    fn without_a_driver_there_is_no_lock_and_it_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"read line; echo "$line" >> LOG; test -e LOG.driver && echo ok || echo refused: no driver; cat > /dev/null"#;
        let (locks, log) = locks(folder.path(), script);
        let tried = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        until("it to be tried twice", || !locks.are_ready() && tried() >= 2);
        std::fs::write(log.with_extension("driver"), "").unwrap();
        until("it to be ready", || locks.are_ready());
    }

    #[test]
    fn either_of_two_lets_everybody_go_when_the_other_is_killed_with_the_manager() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"echo "$$" >> LOG.pids; while read line; do echo "$line" >> LOG.$$; echo ok; done; echo end >> LOG.$$"#;
        let (locks, log) = locks(folder.path(), script);
        let mut lock = of_ours(&locks);
        lock.stop(&Locks::handles(1)).unwrap();
        let pids = std::fs::read_to_string(log.with_extension("pids")).unwrap();
        let [guard, keeper] = [0, 1].map(|nth| pids.lines().nth(nth).unwrap().to_owned());
        let said = |pid: &str| std::fs::read_to_string(log.with_extension(pid)).unwrap();
        let us = std::process::id();
        assert_eq!((said(&guard), said(&keeper)), (format!("held {us}\n"), format!("lock {us} 1000\n")));
        let keeper_pid = nix::unistd::Pid::from_raw(keeper.parse().unwrap());
        nix::sys::signal::kill(keeper_pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        drop((lock, locks));
        until("the guard to be told to end", || said(&guard) == format!("held {us}\nend\n"));
        assert_eq!(said(&keeper), format!("lock {us} 1000\n"));
    }

    #[test]
    fn the_next_one_is_told_who_is_held() {
        let folder = tempfile::tempdir().unwrap();
        // It answers once, then ends.
        let script = r#"read line; echo "$line" >> LOG; echo ok; read line; case "$line" in held*|unlock*|lock*) echo "$line" >> LOG;; esac
            test -e LOG.second && { echo ok; while read line; do echo "$line" >> LOG; echo ok; done; }; touch LOG.second"#;
        // The guard keeps to itself.
        let script = format!(
            "mkdir LOG.guard 2>/dev/null && {{ while read line; do echo ok; done; exit; }}\n{script}"
        );
        let (locks, log) = locks(folder.path(), &script);
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
