//! Questions to a simulated GPU about its use.

use super::link::Link;
use crate::ledger::{Interval, Ledger, Window};
use crate::wire::message::{Answer, GpuInfo, Request};
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

/// Name, identity and memory of the GPU, without becoming a process that uses it.
///
/// # Errors
/// No daemon answers at the socket.
pub fn gpu_info(socket: &Path) -> io::Result<GpuInfo> {
    match ask(socket, &Request::Gpu)? {
        Answer::Gpu(info) => Ok(info),
        answer => Err(out_of_place(&answer)),
    }
}
