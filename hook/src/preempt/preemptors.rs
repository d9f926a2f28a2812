//! Who holds a stream: the program itself, its manager, or both. It runs again when neither does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

use super::{HookEngine, loads};

/// Who wants a stream to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preemptor {
    Program,
    Manager,
}

impl Preemptor {
    fn bit(self) -> u8 {
        match self {
            Self::Program => 1,
            Self::Manager => 2,
        }
    }
}

/// Whether the program holds any stream.
static ANY_BY_PROGRAM: AtomicBool = AtomicBool::new(false);
static PREEMPTED_BY: Mutex<BTreeMap<QueueId, u8>> = Mutex::new(BTreeMap::new());

/// Preempts a stream on somebody's behalf; a refusal leaves it to whoever bits it before.
pub(super) fn preempt_for(
    engine: &HookEngine,
    queue: &Queue,
    preemptor: Preemptor,
    request: Request,
) -> Result<Achieved, Error> {
    {
        let mut preempted = lock();
        let bits = preempted.get(&queue.id()).map_or(0, |bits| *bits) | preemptor.bit();
        preempted.insert(queue.id(), bits);
        update_any_by_program(&preempted);
        // While nobody else can change who holds it: what the engine is told last is what is so.
        engine.set_yields_to_loads(queue, yields_to_loads(bits));
    }
    let result = engine.preempt(queue, request);
    if matches!(result, Err(error) if !matches!(error, Error::Timeout { pending: true })) {
        let _ = restore_for(engine, queue, preemptor);
    }
    result
}

/// Lets a stream run again, unless somebody else holds it. Whoever comes to hold it meanwhile waits, so that this does not undo it.
pub(super) fn restore_for(engine: &HookEngine, queue: &Queue, preemptor: Preemptor) -> Result<(), Error> {
    let mut preempted = lock();
    let others = preempted.get(&queue.id()).map_or(0, |bits| bits & !preemptor.bit());
    if others == 0 {
        preempted.remove(&queue.id());
        update_any_by_program(&preempted);
        return engine.restore(queue);
    }
    preempted.insert(queue.id(), others);
    update_any_by_program(&preempted);
    engine.set_yields_to_loads(queue, yields_to_loads(others));
    // Without the lease of whoever has let go, and not at a gate that a load of which the engine knows nothing could wait for.
    let level = (yields_to_loads(others) && loads::is_any_untracked()).then_some(PreemptionLevel::Host);
    let request = Request { timeout_ns: 0, level, ..Request::default() };
    engine.preempt(queue, request).map(drop).or(Ok(()))
}

/// Whether a manager holds the stream.
pub(super) fn is_preempted_by_manager(queue: QueueId) -> bool {
    lock().get(&queue).is_some_and(|bits| bits & Preemptor::Manager.bit() != 0)
}

/// The program holds the stream no more: it has destroyed it, or ended its context.
pub(super) fn forget_program(queue: QueueId) {
    let mut preempted = lock();
    if let Some(bits) = preempted.get_mut(&queue) {
        *bits &= !Preemptor::Program.bit();
    }
    preempted.retain(|_, bits| *bits != 0);
    update_any_by_program(&preempted);
}

/// The stream runs again by itself, or is gone.
pub(super) fn forget(queue: QueueId) {
    let mut preempted = lock();
    preempted.remove(&queue);
    update_any_by_program(&preempted);
}

/// Whether the program itself holds some stream.
#[inline]
pub(super) fn is_any_preempted_by_program() -> bool {
    ANY_BY_PROGRAM.load(Relaxed)
}

/// Whether a stream that is bits so yields to loads: a manager lets go of it by itself, and soon.
fn yields_to_loads(bits: u8) -> bool {
    bits == Preemptor::Program.bit()
}

fn update_any_by_program(preempted: &BTreeMap<QueueId, u8>) {
    ANY_BY_PROGRAM.store(preempted.values().any(|bits| bits & Preemptor::Program.bit() != 0), Relaxed);
}

fn lock() -> MutexGuard<'static, BTreeMap<QueueId, u8>> {
    PREEMPTED_BY.lock().unwrap_or_else(PoisonError::into_inner)
}
