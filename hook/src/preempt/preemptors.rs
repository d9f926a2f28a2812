//! Who holds a stream: the program itself, its manager, or both. It runs again when neither does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_preempt::config::Level;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

use super::{HookEngine, loads};

/// Who wants a stream to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Program,
    Manager,
}

impl Holder {
    fn bit(self) -> u8 {
        match self {
            Self::Program => 1,
            Self::Manager => 2,
        }
    }
}

/// Whether the program holds any stream.
static PROGRAM_S: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<BTreeMap<QueueId, u8>> = Mutex::new(BTreeMap::new());

/// Preempts a stream on somebody's behalf; a refusal leaves it to whoever held it before.
pub(super) fn hold(
    engine: &HookEngine,
    queue: &Queue,
    holder: Holder,
    request: Request,
) -> Result<Achieved, Error> {
    {
        let mut all = all();
        let held = all.get(&queue.id()).map_or(0, |held| *held) | holder.bit();
        all.insert(queue.id(), held);
        note(&all);
        // While nobody else can change who holds it: what the engine is told last is what is so.
        engine.set_yields(queue, yields(held));
    }
    let result = engine.preempt(queue, request);
    if matches!(result, Err(error) if !matches!(error, Error::Timeout { pending: true })) {
        let _ = release(engine, queue, holder);
    }
    result
}

/// Lets a stream run again, unless somebody else holds it. Whoever comes to hold it meanwhile waits, so that this does not undo it.
pub(super) fn release(engine: &HookEngine, queue: &Queue, holder: Holder) -> Result<(), Error> {
    let mut all = all();
    let others = all.get(&queue.id()).map_or(0, |held| held & !holder.bit());
    if others == 0 {
        all.remove(&queue.id());
        note(&all);
        return engine.restore(queue);
    }
    all.insert(queue.id(), others);
    note(&all);
    engine.set_yields(queue, yields(others));
    // Without the lease of whoever has let go, and not at a gate that a load of which the engine knows nothing could wait for.
    let level = (yields(others) && loads::is_any_early()).then_some(Level::Host);
    let request = Request { timeout_ns: 0, level, ..Request::default() };
    engine.preempt(queue, request).map(drop).or(Ok(()))
}

/// Whether a manager holds the stream.
pub(super) fn is_held_by_manager(queue: QueueId) -> bool {
    all().get(&queue).is_some_and(|held| held & Holder::Manager.bit() != 0)
}

/// The program holds the stream no more: it has destroyed it, or ended its context.
pub(super) fn program_is_through(queue: QueueId) {
    let mut all = all();
    if let Some(held) = all.get_mut(&queue) {
        *held &= !Holder::Program.bit();
    }
    all.retain(|_, held| *held != 0);
    note(&all);
}

/// The stream runs again by itself, or is gone.
pub(super) fn forget(queue: QueueId) {
    let mut all = all();
    all.remove(&queue);
    note(&all);
}

/// Whether the program itself holds some stream.
#[inline]
pub(super) fn is_any_program_s() -> bool {
    PROGRAM_S.load(Relaxed)
}

/// Whether a stream that is held so yields to loads: a manager lets go of it by itself, and soon.
fn yields(held: u8) -> bool {
    held == Holder::Program.bit()
}

fn note(all: &BTreeMap<QueueId, u8>) {
    PROGRAM_S.store(all.values().any(|held| held & Holder::Program.bit() != 0), Relaxed);
}

fn all() -> MutexGuard<'static, BTreeMap<QueueId, u8>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
