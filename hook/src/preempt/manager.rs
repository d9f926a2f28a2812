//! The manager's gate: a word on the grant page says whether streams are to have gates, and whether these are closed.
//!
//! One thread per device follows the word. The GPU never waits for a word that only the manager can write. It waits
//! for the process's own gates, and they open when the manager is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use sluice_comm::page::grant::{GATE_CLOSED, GATES_WANTED};
use sluice_comm::page::report::{GATES_DEVICE, GATES_HOST};
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Clock, TokenLink};
use sluice_preempt::config::PreemptionLevel;
use sluice_sys::futex;

use super::engagement::engage;
use super::engine::{engine, is_ending};
use super::gate_requests::{ANY_GATES_WANTED, GATE_REQUESTS, ensure_gates, stop};
use super::preemptors::{self, Preemptor};
use super::{streams, worker};
use crate::clock::HostClock;
use crate::counters::COUNTERS;
use crate::link::TokenConnection;
use crate::{fork, thread};

/// Interval of checks of the connection while gates are closed: the delay after which streams of a killed manager run
/// again.
const POLL_CLOSED: Duration = Duration::from_millis(20);

/// Interval of checks of the connection while gates are open.
const POLL_OPEN: Duration = Duration::from_millis(500);

/// Interval of attempts while a thread in the driver keeps a stream from being stopped for certain.
const POLL_RETRY: Duration = Duration::from_millis(1);

/// Bit n: a thread follows the word of device n.
static FOLLOWED_DEVICES: AtomicU64 = AtomicU64::new(0);

/// Since when gates are closed; 0 while they are open.
static CLOSED_SINCE_NS: AtomicU64 = AtomicU64::new(0);

/// Since when a manager has this process hold its work back; `None` while gates are open.
pub(crate) fn closed_since_ns() -> Option<u64> {
    Some(CLOSED_SINCE_NS.load(Acquire)).filter(|since| *since != 0)
}

/// Starts to follow a device's word, once there is one. The tracker calls this from time to time.
pub(crate) fn follow_gate_word(ordinal: u32, link: &'static TokenConnection) {
    let bit = bit(ordinal);
    let follows = FOLLOWED_DEVICES.load(Relaxed) & bit != 0;
    if follows || link.stream_gate_word().is_none() || FOLLOWED_DEVICES.fetch_or(bit, AcqRel) & bit != 0 {
        return;
    }
    if !thread::start(c"sluice-gate", thread::SMALL_STACK_BYTES, move || run_thread(bit, link)) {
        // The next call tries again.
        FOLLOWED_DEVICES.fetch_and(!bit, AcqRel);
    }
}

fn bit(ordinal: u32) -> u64 {
    1 << (ordinal % u64::BITS)
}

fn run_thread(device: u64, link: &'static TokenConnection) {
    while !fork::has_forked() && !is_ending() {
        if catch_unwind(AssertUnwindSafe(|| follow_once(device, link))).is_err() {
            COUNTERS.panics.fetch_add(1, Relaxed);
            std::thread::sleep(POLL_OPEN);
        }
    }
}

/// Applies the word, and waits until it changes or the next check is due.
fn follow_once(device: u64, link: &TokenConnection) {
    let gate = link.stream_gate_word();
    let word = gate.map_or(0, |gate| u32::try_from(gate.load(Relaxed) & u64::from(u32::MAX)).unwrap_or(0));
    // A latency-critical process ignores the gate.
    let is_followed = gate.is_some() && link.critical_contenders().is_none() && link.is_alive();
    let wants = is_followed && word & GATES_WANTED != 0;
    let closed = wants && word & GATE_CLOSED != 0;
    let GateReport { gates, is_settled } = apply_gate_word(device, wants, closed);
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
