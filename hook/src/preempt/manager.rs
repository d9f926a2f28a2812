//! The manager's gate: a word on the grant page says whether streams are to have gates, and whether these are closed.
//!
//! One thread per device follows the word. The GPU never waits for a word that only the manager can write. It waits
//! for the process's own gates, and they open when the manager is gone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_comm::page::grant::{GATE_CLOSED, GATES_WANTED};
use sluice_comm::page::report::{GATES_DEVICE, GATES_HOST};
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Clock, TokenLink};
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;
use sluice_sys::futex;

use super::preemptors::{self, Preemptor};
use super::program_api::{GateUse, can_stop_on_gpu};
use super::{HookEngine, engage, engine, is_ending, streams, worker};
use crate::clock::HostClock;
use crate::process::{self, COUNTERS, ManagedDevice};
use crate::thread;

/// Interval of checks of the connection while gates are closed: the delay after which streams of a killed manager run
/// again.
const POLL_CLOSED: Duration = Duration::from_millis(20);

/// Interval of checks of the connection while gates are open.
const POLL_OPEN: Duration = Duration::from_millis(500);

/// Interval of attempts while a thread in the driver keeps a stream from being stopped for certain.
const POLL_RETRY: Duration = Duration::from_millis(1);

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
struct GateRequests {
    /// Bit n: device n wants gates.
    gates: u64,
    /// Bit n: the gates of device n are closed.
    closed: u64,
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

static GATE_REQUESTS: Mutex<GateRequests> = Mutex::new(GateRequests { gates: 0, closed: 0 });
/// Whether any manager wants gates; read without the lock.
static ANY_GATES_WANTED: AtomicBool = AtomicBool::new(false);
/// Bit n: a thread follows the word of device n.
static FOLLOWED_DEVICES: AtomicU64 = AtomicU64::new(0);

/// Since when gates are closed; 0 while they are open.
static CLOSED_SINCE_NS: AtomicU64 = AtomicU64::new(0);

/// Since when a manager has this process hold its work back; `None` while gates are open.
pub(crate) fn closed_since_ns() -> Option<u64> {
    Some(CLOSED_SINCE_NS.load(Acquire)).filter(|since| *since != 0)
}

/// Starts to follow a device's word, once there is one. The tracker calls this from time to time.
pub(crate) fn follow_gate_word(managed: &'static ManagedDevice) {
    let bit = bit(managed);
    let follows = FOLLOWED_DEVICES.load(Relaxed) & bit != 0;
    if follows
        || managed.device.link.stream_gate_word().is_none()
        || FOLLOWED_DEVICES.fetch_or(bit, AcqRel) & bit != 0
    {
        return;
    }
    if !thread::start(c"sluice-gate", thread::SMALL_STACK_BYTES, move || run_thread(managed)) {
        // The next call tries again.
        FOLLOWED_DEVICES.fetch_and(!bit, AcqRel);
    }
}

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

fn bit(managed: &ManagedDevice) -> u64 {
    1 << (managed.ordinal % u64::BITS)
}

fn run_thread(managed: &'static ManagedDevice) {
    while !process::has_forked() && !is_ending() {
        if catch_unwind(AssertUnwindSafe(|| follow_once(managed))).is_err() {
            COUNTERS.panics.fetch_add(1, Relaxed);
            std::thread::sleep(POLL_OPEN);
        }
    }
}

/// Applies the word, and waits until it changes or the next check is due.
fn follow_once(managed: &'static ManagedDevice) {
    let link = &managed.device.link;
    let gate = link.stream_gate_word();
    let word = gate.map_or(0, |gate| u32::try_from(gate.load(Relaxed) & u64::from(u32::MAX)).unwrap_or(0));
    // A latency-critical process ignores the gate.
    let is_followed = gate.is_some() && link.critical_contenders().is_none() && link.is_alive();
    let wants = is_followed && word & GATES_WANTED != 0;
    let closed = wants && word & GATE_CLOSED != 0;
    let GateReport { gates, is_settled } = apply_gate_word(bit(managed), wants, closed);
    link.report_stream_gates(if wants { gates } else { 0 });
    let look = match (closed, is_settled) {
        (false, _) => POLL_OPEN,
        (true, true) => POLL_CLOSED,
        (true, false) => POLL_RETRY,
    };
    let waited = gate.map(|gate| link.wait_for_gate_change(gate, word, look));
    if matches!(waited, None | Some(futex::Wake::Refused)) {
        std::thread::sleep(POLL_CLOSED);
    }
}

struct GateReport {
    /// Which kind of gates is in force, for the manager.
    gates: u64,
    /// Whether nothing has to be tried again.
    is_settled: bool,
}

impl GateReport {
    const NOTHING: Self = Self { gates: 0, is_settled: true };
}

/// Gives streams gates, closes and opens them.
fn apply_gate_word(device: u64, gates: bool, closed: bool) -> GateReport {
    let mut wanted = lock(&GATE_REQUESTS);
    let before = (wanted.gates != 0, wanted.closed != 0);
    let set = |bits: u64, on: bool| if on { bits | device } else { bits & !device };
    (wanted.gates, wanted.closed) = (set(wanted.gates, gates), set(wanted.closed, closed));
    let after = (wanted.gates != 0, wanted.closed != 0);
    if !before.0 && !after.0 {
        return GateReport::NOTHING;
    }
    ANY_GATES_WANTED.store(after.0, Release);
    if before.1 != after.1 {
        CLOSED_SINCE_NS.store(if after.1 { HostClock.now_ns() } else { 0 }, Release);
    }
    let Some(engine) = (if after.0 { engage() } else { engine() }) else { return GateReport::NOTHING };
    if before.0 != after.0 {
        engine.set_contended(after.0);
    }
    // The worker submits pending commands: without it no stream may be stopped.
    let works = worker::wake_worker();
    // The legacy default stream, which copies and waits use in passing, is held at level *host* only. The reported
    // level is that of the other streams, if there are any.
    let (mut levels, mut is_settled) = (Vec::new(), true);
    let (queues, ended) = (streams::all(), streams::ended());
    // Gates open first: a thread may be in the driver until its streams run, holding a lock of the driver that other
    // threads need.
    if before.1 && !after.1 {
        for queue in queues.iter().chain(&ended) {
            let _ = preemptors::restore_for(engine, queue, Preemptor::Manager);
        }
    }
    // A destroyed stream keeps the gates that it has. One that was not stopped before submits what it has left.
    if after.1 && works {
        ended.iter().for_each(|queue| _ = stop(engine, queue));
    }
    for queue in queues {
        if after.0 {
            let level = ensure_gates(engine, &queue);
            levels.extend((!queue.stream().is_legacy()).then_some(level));
        }
        if after.1 && works {
            is_settled &= stop(engine, &queue);
        }
    }
    let gates = match levels.iter().min() {
        _ if !works => 0,
        Some(level) if *level >= PreemptionLevel::Device => GATES_DEVICE,
        _ => GATES_HOST,
    };
    GateReport { gates, is_settled }
}

/// Enables preemption, unless the program has done so itself. Returns the level at which the stream stops. A refusal
/// of gates may have been temporary, so it is tried again after a while.
fn ensure_gates(engine: &HookEngine, queue: &Arc<Queue>) -> PreemptionLevel {
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
fn stop(engine: &HookEngine, queue: &Queue) -> bool {
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
        Err(error) => process::log(format_args!("preemption for the manager: {error}")),
    }
    true
}
