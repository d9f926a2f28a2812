//! All threads of a process, stopped by ptrace: no signal of another process continues them, and if the manager ends, the kernel does.
//!
//! A program that enables its channel groups itself would do so again after each control. Ptrace needs the privilege that copying its
//! descriptors needs.

use crate::message::{Message, Remote};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sluice_core::ProcessId;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The most threads that are stopped. A process with more has its groups disabled only.
const MOST_THREADS: usize = 4096;
/// How long threads may take to stop: one inside a driver call stops at its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which stopped threads that were killed are reaped. Until then the end of their process is not reported.
const REAP_INTERVAL: Duration = Duration::from_millis(50);

/// The threads of a process, stopped until this is dropped.
#[derive(Debug)]
pub(crate) struct StoppedThreads {
    /// The tracing thread ends when this is dropped, and the kernel then continues the threads.
    _release: Sender<()>,
}

impl StoppedThreads {
    /// Begins to stop the process of `pidfd`. [`Message::ThreadsStopped`] reports when all threads have stopped, or why they cannot be.
    pub(super) fn begin(id: ProcessId, pid: i32, pidfd: OwnedFd, remote: Remote) -> io::Result<Self> {
        let (_release, released) = channel();
        std::thread::Builder::new().name("sluice-stop".into()).spawn(move || {
            let result = stop_all(pid, &pidfd).map_err(|why| why.to_string());
            let stopped = result.is_ok();
            remote.send(Message::ThreadsStopped(id, result));
            if stopped {
                reap_until(&released);
            }
        })?;
        Ok(Self { _release })
    }
}

/// Stops all threads, also those that are created meanwhile.
fn stop_all(pid: i32, pidfd: &OwnedFd) -> io::Result<()> {
    let mut seized = BTreeSet::new();
    loop {
        let found = threads_of(pid)?;
        let new: Vec<i32> = found.into_iter().filter(|tid| !seized.contains(tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            // A thread that is created by a seized one is traced from its begin.
            match ptrace::seize(Pid::from_raw(tid), Options::PTRACE_O_TRACECLONE) {
                Ok(()) | Err(Errno::ESRCH) => {}
                // A zombie cannot be traced.
                Err(_) if is_traced_by_us(pid, tid) || has_ended(pid, tid) => {}
                Err(error) => return Err(error.into()),
            }
            seized.insert(tid);
        }
        if seized.len() > MOST_THREADS {
            return Err(io::Error::other(format!("the process has more than {MOST_THREADS} threads")));
        }
        // The process id may have been reused: a seized process that lives is the one of the pidfd only if the numbers agree.
        if number_of(pidfd) != Some(pid) {
            return Err(io::Error::other("the process has ended"));
        }
        for tid in &seized {
            // It may have ended.
            let _ = ptrace::interrupt(Pid::from_raw(*tid));
        }
    }
    let end = Instant::now() + STOP_TIMEOUT;
    while Instant::now() < end && !threads_of(pid)?.into_iter().all(|tid| is_stopped(pid, tid)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn threads_of(pid: i32) -> io::Result<Vec<i32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The number of the living process of a pidfd, in the manager's pid namespace.
fn number_of(pidfd: &OwnedFd) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

fn is_traced_by_us(pid: i32, tid: i32) -> bool {
    let us = nix::unistd::gettid().as_raw().to_string();
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_some_and(|tracer| tracer.trim() == us)
}

/// Whether a thread has stopped, or has ended.
fn is_stopped(pid: i32, tid: i32) -> bool {
    state_of(pid, tid) == Some('t') || has_ended(pid, tid)
}

/// Whether a thread has ended. The first one of a process stays as a zombie until the last one ends.
fn has_ended(pid: i32, tid: i32) -> bool {
    state_of(pid, tid).is_none_or(|state| "ZX".contains(state))
}

fn state_of(pid: i32, tid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Waits for the release, and reaps threads that are killed meanwhile.
fn reap_until(released: &Receiver<()>) {
    // Only what this thread traces: other threads wait for children of their own.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
    while released.recv_timeout(REAP_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        loop {
            match waitpid(None, Some(flags)) {
                Ok(nix::sys::wait::WaitStatus::StillAlive) => break,
                Ok(_) => {}
                Err(Errno::ECHILD) => return,
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;
