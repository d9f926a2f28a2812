//! Charges of memory that the program has freed and that the GPU may still use. Each is released when the GPU has reached the events that
//! were recorded behind the work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_driver_api::types::CUstream;
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Driver, Mark, Stream};

use crate::captures::CAPTURES;
use crate::process::ManagedDevice;
use crate::thread_state;

struct DeferredRelease {
    managed: &'static ManagedDevice,
    bytes: u64,
    marks: Vec<Mark>,
}

static DEFERRED: Mutex<Vec<DeferredRelease>> = Mutex::new(Vec::new());
/// Locked while charges are released, so that a thread which finds none has waited for those that another one is releasing.
static RELEASING: Mutex<()> = Mutex::new(());
/// Whether there is any; read without the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// Releases a charge behind all work that the process is known to have on the device.
pub(super) fn behind_all_work(managed: &'static ManagedDevice, bytes: u64) {
    if bytes > 0 {
        defer(managed, bytes, managed.device.mark_work());
    }
}

/// When a call on a stream is made.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// In the program's call.
    AtCall,
    /// When the commands before it were submitted, on the thread that does so. It must not wait for the manager.
    Later,
}

/// Releases a charge behind a call that was just made on a stream. If no event can be recorded there, the charge waits for none.
pub(super) fn behind_stream(
    managed: &'static ManagedDevice,
    bytes: u64,
    (stream, per_thread): (CUstream, bool),
    when: When,
) {
    let stream =
        thread_state::with_thread(|thread| Stream::new(stream.addr() as u64, per_thread, thread.id()));
    let driver = &managed.device.driver;
    // An event would become a part of the graph.
    let is_captured = CAPTURES.any() && driver.is_capturing(stream);
    let location = if is_captured { None } else { driver.locate(stream) };
    let mark = location.and_then(|located| driver.mark(located.context, stream));
    let marks = mark.into_iter().collect();
    match when {
        When::AtCall => defer(managed, bytes, marks),
        When::Later => keep(managed, bytes, marks),
    }
}

fn defer(managed: &'static ManagedDevice, bytes: u64, mut marks: Vec<Mark>) {
    if managed.device.discard_if_reached(&mut marks) {
        managed.memory.release(bytes);
    } else {
        keep(managed, bytes, marks);
    }
}

fn keep(managed: &'static ManagedDevice, bytes: u64, marks: Vec<Mark>) {
    lock(&DEFERRED).push(DeferredRelease { managed, bytes, marks });
    ANY.store(true, Release);
}

/// Whether charges wait for the GPU.
#[inline]
pub(super) fn any() -> bool {
    ANY.load(Relaxed)
}

/// Releases the charges of which the GPU has reached the events. `false` if none was deferred.
pub(super) fn release_reached() -> bool {
    if !ANY.load(Acquire) {
        return false;
    }
    let _releasing = lock(&RELEASING);
    // Other threads may defer releases while the driver is asked.
    let deferred = std::mem::take(&mut *lock(&DEFERRED));
    let is_left =
        |deferred: &mut DeferredRelease| !deferred.managed.device.discard_if_reached(&mut deferred.marks);
    let mut left = Vec::new();
    for mut deferred in deferred {
        if is_left(&mut deferred) {
            left.push(deferred);
        } else {
            deferred.managed.memory.release(deferred.bytes);
        }
    }
    let mut all = lock(&DEFERRED);
    all.append(&mut left);
    ANY.store(!all.is_empty(), Release);
    true
}
