//! Questions to a simulated GPU about itself and its use, and what may be done to it from outside.

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

/// Use of the GPU between two times of CLOCK_MONOTONIC in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn window(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Window> {
    match ask(socket, &Request::Window { from_ns, to_ns })? {
        Answer::Window(window) => Ok(window),
        answer => Err(out_of_place(&answer)),
    }
}

/// Who had the GPU when, between two times of CLOCK_MONOTONIC in nanoseconds.
///
/// # Errors
/// No daemon answers at the socket.
pub fn timeline(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Vec<Interval>> {
    match ask(socket, &Request::Timeline { from_ns, to_ns })? {
        Answer::Timeline(intervals) => Ok(intervals),
        answer => Err(out_of_place(&answer)),
    }
}

/// Makes something go wrong on the GPU, as the driver would report it by this Xid.
///
/// # Errors
/// No daemon answers at the socket.
pub fn inject(socket: &Path, xid: u64) -> io::Result<()> {
    done(ask(socket, &Request::Inject { xid })?)
}

/// Repairs whatever is wrong with the GPU.
///
/// # Errors
/// No daemon answers at the socket.
pub fn heal(socket: &Path) -> io::Result<()> {
    done(ask(socket, &Request::Heal)?)
}

/// Holds a process at its next call of the driver, and waits until nothing of it is under way on this GPU; no limit if
/// `timeout_ms` is 0.
///
/// # Errors
/// No daemon answers at the socket; within, why it was not locked.
pub fn lock(socket: &Path, pid: i32, timeout_ms: u32) -> io::Result<Result<(), LockFailure>> {
    locked(ask(socket, &Request::Lock { pid, timeout_ms })?)
}

/// Lets a process that is held go on.
///
/// # Errors
/// As [`lock`].
pub fn unlock(socket: &Path, pid: i32) -> io::Result<Result<(), LockFailure>> {
    locked(ask(socket, &Request::Unlock { pid })?)
}

/// Whether a process is held; none if it does not use this GPU.
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
