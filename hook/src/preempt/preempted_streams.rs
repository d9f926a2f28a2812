//! The streams that the program preempts.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_hook_core::lock;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

use super::engine::HookEngine;

/// Whether the program preempts any stream.
static ANY: AtomicBool = AtomicBool::new(false);
static PREEMPTED: Mutex<BTreeSet<QueueId>> = Mutex::new(BTreeSet::new());

/// Preempts a stream.
pub(super) fn preempt(engine: &HookEngine, queue: &Queue, request: Request) -> Result<Achieved, Error> {
    {
        let mut preempted = lock(&PREEMPTED);
        preempted.insert(queue.id());
        ANY.store(true, Relaxed);
    }
    let result = engine.preempt(queue, request);
    if matches!(result, Err(error) if !matches!(error, Error::Timeout { pending: true })) {
        let _ = restore(engine, queue);
    }
    result
}

/// Restores a stream. A concurrent preemption waits for this call, so that this call does not undo it.
pub(super) fn restore(engine: &HookEngine, queue: &Queue) -> Result<(), Error> {
    let mut preempted = lock(&PREEMPTED);
    remove(&mut preempted, queue.id());
    engine.restore(queue)
}

/// Forgets a stream that was restored by itself, or that is gone: destroyed, or with its context.
pub(super) fn forget(queue: QueueId) {
    remove(&mut lock(&PREEMPTED), queue);
}

/// Whether the program preempts any stream.
#[inline]
pub(super) fn is_any_preempted() -> bool {
    ANY.load(Relaxed)
}

fn remove(preempted: &mut BTreeSet<QueueId>, queue: QueueId) {
    preempted.remove(&queue);
    ANY.store(!preempted.is_empty(), Relaxed);
}
