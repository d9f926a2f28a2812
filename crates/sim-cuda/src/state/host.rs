//! Host functions: functions that a stream runs on the CPU, on a thread of this library.
//!
//! The stream contains a mark, followed by a command that stops the stream. The thread waits for the mark, calls
//! the function and ends that command.

use super::context::Device;
use super::lock;
use super::stream::Stream;
use crate::border::Status;
use sluice_driver_api::CUresult;
use sluice_driver_api::types::{CUhostFn, CUstreamCallback, c_void};
use sluice_sim::client::{Mark, StreamCommand};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

pub(crate) fn at_fork(child: extern "C" fn()) {
    // SAFETY: the function only stores to an atomic, which is allowed between fork and exec; it lives as long as this
    // library, which is never unloaded (its descriptors and threads would be left behind).
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// A function and its argument, as the caller gave them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// `cuLaunchHostFunc`.
    Function { function: CUhostFn, data: usize },
    /// `cuStreamAddCallback`.
    Callback { function: CUstreamCallback, stream: usize, data: usize },
}

impl Call {
    fn call(self) {
        let pointer = |data: usize| std::ptr::with_exposed_provenance_mut::<c_void>(data);
        match self {
            Call::Function { function: Some(function), data } => {
                // SAFETY: the caller of cuLaunchHostFunc guarantees that the function may be called with this
                // argument.
                unsafe { function(pointer(data)) }
            }
            Call::Callback { function: Some(function), stream, data } => {
                let stream = std::ptr::with_exposed_provenance_mut(stream);
                // SAFETY: the caller of cuStreamAddCallback guarantees that the function may be called with this
                // argument.
                unsafe { function(stream, CUresult::SUCCESS, pointer(data)) }
            }
            _ => {}
        }
    }
}

struct Job {
    stream: Arc<Stream>,
    before: Mark,
    /// The function, and the command that stops the stream until it has returned.
    call: Option<(Call, Mark)>,
}

#[derive(Default)]
pub(crate) struct HostThread {
    jobs: Arc<Mutex<Vec<Job>>>,
    started: OnceLock<()>,
}

/// Puts a host function into a stream that is not captured.
pub(crate) fn launch(stream: &Arc<Stream>, call: Call) -> Status {
    // The order of a stream's functions in the list is that of their commands. The list itself is not locked here: a
    // full stream makes this call wait, and it may be full because of functions that have not been called yet.
    let _order = lock(&stream.host_order);
    let before = stream.submit(StreamCommand::Record(None), None)?;
    let hold = stream.submit(StreamCommand::Host, None)?;
    enqueue(stream, before, Some((call, hold)));
    Ok(())
}

/// Applies the effects of a stream up to a mark when they are due, even without a query, because other threads may read
/// the memory.
pub(crate) fn apply_effects_at(stream: &Arc<Stream>, mark: Mark) {
    let _order = lock(&stream.host_order);
    enqueue(stream, mark, None);
}

fn enqueue(stream: &Arc<Stream>, before: Mark, call: Option<(Call, Mark)>) {
    let device = &stream.context.device;
    lock(&device.host.jobs).push(Job { stream: stream.clone(), before, call });
    device.host.started.get_or_init(|| start(device));
    device.gpu.watch(before);
    device.gpu.notify();
}

fn start(device: &Arc<Device>) {
    let (gpu, jobs) = (device.gpu.clone(), device.host.jobs.clone());
    let run = move || {
        loop {
            let seen = gpu.notified();
            while let Some(job) = next_job(&jobs, |mark| gpu.is_done(mark)) {
                if let Some((call, hold)) = job.call {
                    call.call();
                    job.stream.sim.host_done(hold.seq());
                }
            }
            if !gpu.wait_notified(seen) {
                return;
            }
        }
    };
    // Without a thread the functions are not called and their streams remain stopped, which the caller sees.
    let _ = std::thread::Builder::new().name("cuda-sim-host".into()).spawn(run);
}

/// Removes the first job that is due. Of each stream only the first job can be due.
fn next_job(jobs: &Mutex<Vec<Job>>, is_done: impl Fn(Mark) -> bool) -> Option<Job> {
    let mut jobs = lock(jobs);
    let mut checked = HashSet::new();
    let index = jobs.iter().position(|job| checked.insert(job.stream.handle) && is_done(job.before))?;
    Some(jobs.remove(index))
}
