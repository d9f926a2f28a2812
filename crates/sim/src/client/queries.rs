//! Queries of a simulated GPU and its use, and interventions from outside.

use super::link::Link;
use crate::ledger::{Interval, Ledger, Window};
use crate::wire::message::{Answer, GpuInfo, LockFailure, Request};
use std::io;
use std::path::Path;

fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    Link::open(socket)?.ask(request)
}

fn out_of_place(answer: &Answer) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the simulated GPU answered {answer:?}"))
}

/// The whole ledger at this moment.
///
/// # Errors
/// No daemon answers at the socket.
pub fn ledger(socket: &Path) -> io::Result<Ledger> {
    match ask(socket, &Request::Ledger)? {
        Answer::Ledger(ledger) => Ok(*ledger),
        answer => Err(out_of_place(&answer)),
    }
}

/// Use of the GPU between two times of CLOCK_MONOTONIC, in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn window(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Window> {
    match ask(socket, &Request::Window { from_ns, to_ns })? {
        Answer::Window(window) => Ok(window),
        answer => Err(out_of_place(&answer)),
    }
}

/// The intervals in which each process had the GPU, between two times of CLOCK_MONOTONIC, in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn timeline(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Vec<Interval>> {
    match ask(socket, &Request::Timeline { from_ns, to_ns })? {
        Answer::Timeline(intervals) => Ok(intervals),
        answer => Err(out_of_place(&answer)),
    }
}

/// Injects the fault that the driver would report by this Xid.
///
/// # Errors
/// No daemon answers at the socket.
pub fn inject(socket: &Path, xid: u64) -> io::Result<()> {
    done(ask(socket, &Request::Inject { xid })?)
}

/// Repairs all faults of the GPU.
///
/// # Errors
/// No daemon answers at the socket.
pub fn heal(socket: &Path) -> io::Result<()> {
    done(ask(socket, &Request::Heal)?)
}

/// Locks a process at its next driver call, and waits until it has no work in progress on this GPU. `timeout_ms` 0
/// means no limit.
///
/// # Errors
/// No daemon answers at the socket; within, why the process was not locked.
pub fn lock(socket: &Path, pid: i32, timeout_ms: u32) -> io::Result<Result<(), LockFailure>> {
    locked(ask(socket, &Request::Lock { pid, timeout_ms })?)
}

/// Unlocks a process.
///
/// # Errors
/// As [`lock`].
pub fn unlock(socket: &Path, pid: i32) -> io::Result<Result<(), LockFailure>> {
    locked(ask(socket, &Request::Unlock { pid })?)
}

/// Whether a process is locked; `None` if it does not use this GPU.
///
/// # Errors
/// No daemon answers at the socket.
pub fn is_locked(socket: &Path, pid: i32) -> io::Result<Option<bool>> {
    match ask(socket, &Request::LockState { pid })? {
        Answer::Number(number) => Ok(Some(number != 0)),
        Answer::NotLocked(_) => Ok(None),
        answer => Err(out_of_place(&answer)),
    }
}

fn locked(answer: Answer) -> io::Result<Result<(), LockFailure>> {
    match answer {
        Answer::Done => Ok(Ok(())),
        Answer::NotLocked(failure) => Ok(Err(failure)),
        answer => Err(out_of_place(&answer)),
    }
}

fn done(answer: Answer) -> io::Result<()> {
    match answer {
        Answer::Done => Ok(()),
        answer => Err(out_of_place(&answer)),
    }
}

/// Name, identity, memory and condition of the GPU, without becoming a process that uses it.
///
/// # Errors
/// No daemon answers at the socket.
pub fn gpu_info(socket: &Path) -> io::Result<GpuInfo> {
    match ask(socket, &Request::Gpu)? {
        Answer::Gpu(info) => Ok(info),
        answer => Err(out_of_place(&answer)),
    }
}
