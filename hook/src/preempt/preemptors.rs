//! Which of program and manager preempt a stream. The stream runs again when neither does.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_hook_core::lock;
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;

use super::engine::HookEngine;
use super::untracked_loads::is_any_untracked;

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

/// Whether the program preempts any stream.
static ANY_BY_PROGRAM: AtomicBool = AtomicBool::new(false);
static PREEMPTED_BY: Mutex<BTreeMap<QueueId, u8>> = Mutex::new(BTreeMap::new());

/// Preempts a stream for one party. If that fails, the other party's preemption stays.
pub(super) fn preempt_for(
    engine: &HookEngine,
    queue: &Queue,
    preemptor: Preemptor,
    request: Request,
) -> Result<Achieved, Error> {
    {
        let mut preempted = lock(&PREEMPTED_BY);
        let bits = preempted.get(&queue.id()).map_or(0, |bits| *bits) | preemptor.bit();
        set_bits(&mut preempted, queue.id(), bits);
        // Under the lock, so that no other change of the parties comes between: the engine's last setting is the true
        // one.
        engine.set_yields_to_loads(queue, yields_to_loads(bits));
    }
    let result = engine.preempt(queue, request);
    if matches!(result, Err(error) if !matches!(error, Error::Timeout { pending: true })) {
        let _ = restore_for(engine, queue, preemptor);
    }
    result
}

/// Ends one party's preemption; restores the stream unless the other party preempts it. A concurrent preemption waits
/// for this call, so that this call does not undo it.
pub(super) fn restore_for(engine: &HookEngine, queue: &Queue, preemptor: Preemptor) -> Result<(), Error> {
    let mut preempted = lock(&PREEMPTED_BY);
    let others = preempted.get(&queue.id()).map_or(0, |bits| bits & !preemptor.bit());
    set_bits(&mut preempted, queue.id(), others);
    if others == 0 {
        return engine.restore(queue);
    }
    engine.set_yields_to_loads(queue, yields_to_loads(others));
    // Without the lease of the other party, and not at a gate for which a load unknown to the engine could wait.
    let level = (yields_to_loads(others) && is_any_untracked()).then_some(PreemptionLevel::Host);
    let request = Request { timeout_ns: 0, level, ..Request::default() };
    engine.preempt(queue, request).map(drop).or(Ok(()))
}

pub(super) fn is_preempted_by_manager(queue: QueueId) -> bool {
    lock(&PREEMPTED_BY).get(&queue).is_some_and(|bits| bits & Preemptor::Manager.bit() != 0)
}

/// Forgets the program's preemption: the program has destroyed the stream, or ended its context.
pub(super) fn forget_program(queue: QueueId) {
    let mut preempted = lock(&PREEMPTED_BY);
    let others = preempted.get(&queue).map_or(0, |bits| bits & !Preemptor::Program.bit());
    set_bits(&mut preempted, queue, others);
}

/// Forgets a stream that was restored by itself, or is gone.
pub(super) fn forget(queue: QueueId) {
    set_bits(&mut lock(&PREEMPTED_BY), queue, 0);
}

/// Whether the program preempts any stream.
#[inline]
pub(super) fn is_any_preempted_by_program() -> bool {
    ANY_BY_PROGRAM.load(Relaxed)
}

/// Whether a stream that these parties preempt yields to loads. The manager restores a stream by itself, and soon.
fn yields_to_loads(bits: u8) -> bool {
    bits == Preemptor::Program.bit()
}

fn set_bits(preempted: &mut BTreeMap<QueueId, u8>, queue: QueueId, bits: u8) {
    match bits {
        0 => preempted.remove(&queue),
        _ => preempted.insert(queue, bits),
    };
    ANY_BY_PROGRAM.store(preempted.values().any(|bits| bits & Preemptor::Program.bit() != 0), Relaxed);
}
