//! All threads of a process, stopped by ptrace: no signal of another process continues them, and if the manager ends, the kernel does.
//!
//! A program that enables its channel groups itself would do so again after each control. Ptrace needs the privilege that copying its
//! descriptors needs.

use crate::report::Report;
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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most threads that are stopped. A process with more has its groups disabled only.
const MOST_THREADS: usize = 4096;
/// How long threads may take to stop: one inside a driver call stops at its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long threads may be seized. A process could otherwise create threads, or call execve, without end.
const SEIZE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the kernel may refuse to seize a thread before that is the result.
const MOST_REFUSED: u32 = 20;
/// When the tracing thread counts as blocked, so that only the groups of the process are disabled.
const BLOCKED_AFTER: Duration = Duration::from_secs(5);
/// Interval at which stopped threads that were killed are reaped. Until then the end of their process is not reported.
const REAP_INTERVAL: Duration = Duration::from_millis(50);

/// The threads of a process, stopped until this is dropped.
#[derive(Debug)]
pub(crate) struct StoppedThreads {
    /// The tracing thread ends when this is dropped, and the kernel then continues the threads.
    _release: Sender<()>,
}

/// A process, and whether its threads have stopped, or why they cannot be.
pub(crate) type ThreadsStopped = (ProcessId, Result<(), String>);

/// The threads that the tracing thread has seized.
type Seized = Mutex<BTreeSet<i32>>;

impl StoppedThreads {
    /// Begins to stop the process of `pidfd`. The report comes when all threads have stopped, or says why they cannot be.
    pub(crate) fn begin(
        id: ProcessId,
        pid: i32,
        pidfd: OwnedFd,
        report: Report<ThreadsStopped>,
    ) -> io::Result<Self> {
        let (_release, released) = channel();
        let (done, stopped) = channel();
        let seized = Arc::new(Seized::default());
        let reaped = Arc::clone(&seized);
        std::thread::Builder::new().name("sluice-stop".into()).spawn(move || {
            let result = stop_all(pid, &pidfd, &seized).map_err(|why| why.to_string());
            let has_stopped = result.is_ok();
            // It is not received after [`BLOCKED_AFTER`]: the thread then continues the process.
            if done.send(result).is_ok() && has_stopped {
                reap_until(&released);
            }
        })?;
        std::thread::Builder::new().name("sluice-stop-reap".into()).spawn(move || {
            report.send((id, wait_and_reap(&stopped, &reaped)));
        })?;
        Ok(Self { _release })
    }
}

/// Waits for the result of the tracing thread, and reaps the threads that end meanwhile. A thread that calls execve waits until the other
/// seized threads of its process are reaped, and has a lock meanwhile that the tracing thread may wait for. Only another thread of the manager
/// can reap them then. Something else may block the tracing thread, so the wait ends.
fn wait_and_reap(stopped: &Receiver<Result<(), String>>, seized: &Seized) -> Result<(), String> {
    let end = Instant::now() + BLOCKED_AFTER;
    while Instant::now() < end {
        match stopped.recv_timeout(REAP_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => reap(seized),
            Err(RecvTimeoutError::Disconnected) => return Err("the tracing thread has ended".into()),
        }
    }
    Err(format!("the kernel has not let them be traced for {BLOCKED_AFTER:?}"))
}

fn reap(seized: &Seized) {
    let seized = seized.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for tid in seized {
        // It may have ended, or not be traced yet.
        let _ = waitpid(Pid::from_raw(tid), Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
    }
}

/// Stops all threads, also those that are created meanwhile.
fn stop_all(pid: i32, pidfd: &OwnedFd, seized: &Seized) -> io::Result<()> {
    let seized = || seized.lock().unwrap_or_else(PoisonError::into_inner);
    let (end, mut refused) = (Instant::now() + SEIZE_TIMEOUT, 0);
    loop {
        // After execve the thread that called it has the number of the first one. It need not be traced.
        let is_new =
            |tid: &i32| !seized().contains(tid) || !(is_traced_by_us(pid, *tid) || has_ended(pid, *tid));
        let new: Vec<i32> = threads_of(pid)?.into_iter().filter(is_new).collect();
        if new.is_empty() {
            break;
        }
        if Instant::now() >= end {
            return Err(io::Error::other("its threads change faster than they can be traced"));
        }
        for tid in new {
            // A thread that is created by a seized one is traced from its begin.
            match ptrace::seize(Pid::from_raw(tid), Options::PTRACE_O_TRACECLONE) {
                Ok(()) | Err(Errno::ESRCH) => {}
                // A zombie cannot be traced.
                Err(_) if is_traced_by_us(pid, tid) || has_ended(pid, tid) => {}
                // The first thread ends while another one calls execve, which then has its number.
                Err(_) if refused < MOST_REFUSED => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            seized().insert(tid);
        }
        if seized().len() > MOST_THREADS {
            return Err(io::Error::other(format!("the process has more than {MOST_THREADS} threads")));
        }
        // The process id may have been reused: a seized process that lives is the one of the pidfd only if the numbers agree.
        if number_of(pidfd) != Some(pid) {
            return Err(io::Error::other("the process has ended"));
        }
        for tid in seized().iter() {
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
