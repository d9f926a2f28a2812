//! What managers request of the streams of this process: gates, and that they are closed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};

use sluice_hook_core::lock;
use sluice_hook_core::platform::Clock;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use super::engine::HookEngine;
use super::gate_use::{GateUse, can_stop_on_gpu};
use super::preemptors::{self, Preemptor};
use crate::clock::HostClock;
use crate::settings;

/// Lease of a preemption for the manager. If the following thread is gone, or gets no CPU time for so long, the
/// worker opens the gates.
const LEASE_NS: u64 = 250_000_000;

/// Longest time that a thread in the driver delays the stop of the other streams.
const STOP_TIMEOUT_NS: u64 = 100_000;

/// Configuration of streams with gates. Gates stop them, so the bound only has to allow durations to be learned.
const CONFIG: Config = Config {
    queue_size: 1024,
    batch_size: 32,
    task_timeout_ns: None,
    level: PreemptionLevel::Device,
    bound_ns: 10_000_000,
    gate_spacing_ns: 50_000,
    adaptive: true,
    host_commands: 64 << 10,
    host_bytes: 256 << 20,
    outage_ns: None,
};

/// Bound without gates: what is in the driver runs to its end.
const BOUND_WITHOUT_GATES_NS: u64 = 1_000_000;

/// What the managers of this process's devices request.
#[derive(Debug, Default)]
pub(super) struct GateRequests {
    /// Bit n: device n wants gates.
    pub(super) gates: u64,
    /// Bit n: the gates of device n are closed.
    pub(super) closed: u64,
}

/// First and longest pause after the driver has refused gates.
const REFUSED_NS: (u64, u64) = (20_000_000, 2_000_000_000);

/// A refusal of gates by the driver.
struct Refusal {
    /// When they are tried again.
    until_ns: u64,
    wait_ns: u64,
}

/// Refusals by context and stream.
static REFUSALS: Mutex<BTreeMap<(u64, u64), Refusal>> = Mutex::new(BTreeMap::new());

pub(super) static GATE_REQUESTS: Mutex<GateRequests> = Mutex::new(GateRequests { gates: 0, closed: 0 });

/// Whether any manager wants gates; read without the lock.
pub(super) static ANY_GATES_WANTED: AtomicBool = AtomicBool::new(false);

/// Applies the managers' requests to a stream that has just got a queue.
pub(super) fn apply_to_new_stream(engine: &HookEngine, queue: &Arc<Queue>) {
    if ANY_GATES_WANTED.load(Acquire) {
        let wanted = lock(&GATE_REQUESTS);
        if wanted.gates != 0 {
            ensure_gates(engine, queue);
        }
        if wanted.closed != 0 {
            stop(engine, queue);
        }
    }
}

/// Enables preemption, unless the program has done so itself. Returns the level at which the stream stops. A refusal
/// of gates may have been temporary, so it is tried again after a while.
pub(super) fn ensure_gates(engine: &HookEngine, queue: &Arc<Queue>) -> PreemptionLevel {
    let is_possible = try_gates(queue, || can_stop_on_gpu(engine, queue, GateUse::Prepare).is_ok());
    let level = if is_possible { PreemptionLevel::Device } else { PreemptionLevel::Host };
    match engine.config(queue) {
        Some(config) if config.level >= level || config != manager_config(config.level) => {
            level.min(config.level)
        }
        _ => {
            // A stream that is being destroyed needs no gates.
            let _ = engine.enable(queue, manager_config(level));
            level
        }
    }
}

/// Prepares a stream's gates by `prepare`, unless the driver has refused them a short time ago. An attempt registers memory and makes a
/// stream: it takes locks of the driver, and the program may be short of what the driver lacks.
fn try_gates(queue: &Queue, prepare: impl FnOnce() -> bool) -> bool {
    let stream = queue.stream();
    if stream.is_legacy() {
        return prepare();
    }
    let (key, now) = ((stream.context.0, stream.handle), HostClock.now_ns());
    if lock(&REFUSALS).get(&key).is_some_and(|refusal| now < refusal.until_ns) {
        return false;
    }
    let is_possible = prepare();
    let mut refusals = lock(&REFUSALS);
    if is_possible {
        refusals.remove(&key);
    } else {
        let wait_ns =
            refusals.get(&key).map_or(REFUSED_NS.0, |refusal| 2 * refusal.wait_ns).min(REFUSED_NS.1);
        refusals.insert(key, Refusal { until_ns: now.saturating_add(wait_ns), wait_ns });
    }
    is_possible
}

/// Forgets the refusals of a context that has ended.
pub(super) fn forget_context(context: u64) {
    lock(&REFUSALS).retain(|(of, _), _| *of != context);
}

/// The manager's configuration for streams that can be stopped at this level.
fn manager_config(level: PreemptionLevel) -> Config {
    let bound_ns = if level == PreemptionLevel::Device { CONFIG.bound_ns } else { BOUND_WITHOUT_GATES_NS };
    Config { level, bound_ns, ..CONFIG }
}

/// Stops a stream. Returns `false` if the stop has to be tried again, because a thread is in a call on the stream or
/// in one that may end its context. The stream's gates are closed in this case too.
pub(super) fn stop(engine: &HookEngine, queue: &Queue) -> bool {
    let request = Request {
        level: Some(PreemptionLevel::Device),
        timeout_ns: STOP_TIMEOUT_NS,
        lease_ns: Some(LEASE_NS),
        ..Request::default()
    };
    match preemptors::preempt_for(engine, queue, Preemptor::Manager, request) {
        // It is not known yet whether the context of the stream ends.
        Err(Error::Timeout { .. } | Error::Closing) => return false,
        Ok(_) | Err(Error::NotEnabled | Error::InvalidStream) => {}
        Err(error) => settings::log(format_args!("preemption for the manager: {error}")),
    }
    true
}
