//! The thread that moves the memory of this process: to the host when the manager wants it, and back when it allows that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use sluice_comm::page::MovableMemory;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::platform::Driver;
use sluice_hook_core::residency::ChunkTable;
use sluice_sys::clock::monotonic_ns;

use super::physical;
use super::state::{CHUNKS, DEVICE, GATE, PENDING, PINNING, WAITING, notify};
use super::transfer::{self, Back, CopyCount, synchronize};
use crate::captures::CAPTURES;
use crate::gpu::{relax_capture_mode, with_context};
use crate::process::ManagedDevice;
use crate::{fork, host_memory, known_contexts, settings, thread};

/// How long the thread sleeps unless the manager or a thread of the program wakes it.
const SLEEP: Duration = Duration::from_millis(20);
/// How long it waits at first until it tries again to leave, and at most.
const RETRY_NS: u64 = 100_000_000;
const LONGEST_RETRY_NS: u64 = 10_000_000_000;
/// How long the calls before a drain may take. A thread that was cancelled in one counts for ever.
const LONGEST_DRAIN_NS: u64 = 10_000_000_000;
/// How long after it found no more host memory to pin it looks again.
const LOOK_NS: u64 = 100_000_000;
/// How often it looks whether the calls before a drain have ended.
const POLL: Duration = Duration::from_micros(100);

/// Counts events for this thread: it sleeps only while there is none that it has not seen.
static EVENTS: AtomicU64 = AtomicU64::new(0);

/// When a manager last decided where the memory of this process is, on CLOCK_MONOTONIC, in nanoseconds.
static DECIDED_NS: AtomicU64 = AtomicU64::new(0);

/// Without a manager for so long the memory returns, and allocations wait for no room. A connection that is lost is usually back before.
const LOST_NS: u64 = 1_000_000_000;

/// Whether no manager decides where the memory of this process is.
fn is_manager_lost() -> bool {
    monotonic_ns().saturating_sub(DECIDED_NS.load(Relaxed)) >= LOST_NS
}

/// The room that a manager has decided.
fn room(managed: &ManagedDevice) -> Option<u64> {
    managed.device.link.memory_room().filter(|_| managed.device.link.decides_memory())
}

/// Whether this process may have so much on the GPU.
pub(super) fn has_room(managed: &ManagedDevice, bytes: u64) -> bool {
    room(managed).map_or_else(is_manager_lost, |room| bytes <= room)
}

/// Starts the thread; `false` if the system refuses.
pub(super) fn start(managed: &'static ManagedDevice) -> bool {
    DECIDED_NS.store(monotonic_ns(), Relaxed);
    thread::start(c"sluice-memory", thread::LARGE_STACK_BYTES, move || {
        relax_capture_mode();
        Mover { managed, retry_at_ns: 0, retry_ns: RETRY_NS, prepare_at_ns: 0 }.run();
    })
}

/// Something has changed that the manager is to know: memory, or a thread that waits for some.
pub(super) fn wake() {
    EVENTS.fetch_add(1, SeqCst);
    DEVICE.get().into_iter().for_each(report);
}

/// Reports the memory to the manager and, if that is news, wakes it.
fn report(managed: &ManagedDevice) {
    let Ok(chunks) = CHUNKS.try_lock() else { return };
    managed.device.link.report_memory(place_of(&chunks));
}

/// Where the memory is.
fn place_of(chunks: &ChunkTable) -> MovableMemory {
    MovableMemory {
        need: chunks.bytes().saturating_add(PENDING.load(SeqCst)),
        resident: chunks.resident_bytes(),
        waits: WAITING.load(SeqCst) > 0,
        has_earlier_place: host_memory::is_of_earlier_manager(),
        moves: false,
    }
}

struct Mover {
    managed: &'static ManagedDevice,
    /// After a move that failed: when to try again, and how long to wait after the next failure to leave.
    retry_at_ns: u64,
    retry_ns: u64,
    /// When to pin the next piece of the host memory.
    prepare_at_ns: u64,
}

impl Mover {
    fn run(&mut self) {
        while !fork::has_forked() {
            let seen = EVENTS.load(SeqCst);
            self.step();
            report(self.managed);
            if EVENTS.load(SeqCst) == seen {
                self.managed.device.link.wait_for_memory_room(SLEEP);
            }
        }
    }

    fn step(&mut self) {
        discard_freed();
        let bytes = lock(&CHUNKS).bytes();
        let room = room(self.managed);
        if room.is_some() {
            DECIDED_NS.store(monotonic_ns(), Relaxed);
        }
        if GATE.is_closed() {
            let may_return = bytes == 0 || has_room(self.managed, bytes);
            let begun = monotonic_ns();
            if may_return && begun >= self.retry_at_ns {
                if self.return_all() {
                    GATE.open();
                    notify();
                } else {
                    // Attempts that fail take at most a tenth of the time.
                    let now = monotonic_ns();
                    self.retry_at_ns = now + RETRY_NS.max(9 * now.saturating_sub(begun));
                }
            }
        } else if room.is_some_and(|room| room < bytes) {
            if monotonic_ns() < self.retry_at_ns {
                return;
            }
            if self.leave() {
                self.retry_ns = RETRY_NS;
            } else {
                GATE.reopen();
                self.retry_at_ns = monotonic_ns() + self.retry_ns;
                self.retry_ns = (2 * self.retry_ns).min(LONGEST_RETRY_NS);
            }
            notify();
        } else {
            // An allocation may wait for room that has come.
            notify();
            self.prepare();
        }
    }

    /// Waits until nothing uses the memory, and moves it to the host. `false`: all of it is where it was.
    fn leave(&self) -> bool {
        if !GATE.begin_drain() {
            return false;
        }
        let begun = monotonic_ns();
        while !GATE.is_quiet() {
            if !GATE.is_draining() || monotonic_ns().saturating_sub(begun) >= LONGEST_DRAIN_NS {
                return false;
            }
            std::thread::sleep(POLL);
        }
        // Work of any context may use the memory. None ends during the drain: such a call waits at the gate.
        let contexts = known_contexts::all();
        let has_queued = |context: &u64| self.managed.device.driver.has_queued(*context);
        if CAPTURES.any() || contexts.iter().any(has_queued) {
            return false;
        }
        // While this waits, without a lock, a thread of the program may give the drain up.
        if !contexts.into_iter().all(synchronize) || !GATE.close() {
            return false;
        }
        let mut chunks = lock(&CHUNKS);
        let (bytes, begun) = (chunks.resident_bytes(), monotonic_ns());
        self.managed.device.link.report_memory(MovableMemory { moves: true, ..place_of(&chunks) });
        let count = CopyCount::default();
        if !transfer::out(self.managed, &mut chunks, &count) {
            GATE.open();
            return false;
        }
        log_move("memory left the GPU", bytes, begun, &count);
        true
    }

    /// Moves all memory back. `false`: the GPU has no room for it yet.
    fn return_all(&self) -> bool {
        let mut chunks = lock(&CHUNKS);
        let Ok(device) = c_int::try_from(self.managed.ordinal) else { return false };
        let begun = monotonic_ns();
        self.managed.device.link.report_memory(MovableMemory { moves: true, ..place_of(&chunks) });
        let count = CopyCount::default();
        match transfer::back(self.managed, &mut chunks, device, &count) {
            Back::Complete => {
                log_move("memory returned to the GPU", chunks.bytes(), begun, &count);
                true
            }
            Back::NoRoom => false,
            Back::Failed => true,
        }
    }

    /// Pins a piece of the host memory, so that the first move does not have to do it. What follows waits nine times as long as that took.
    fn prepare(&mut self) {
        // While the driver pins a piece, it answers no other process. A latency-critical client would wait for it.
        if monotonic_ns() < self.prepare_at_ns || self.managed.device.link.paces_moves() {
            return;
        }
        let begun = monotonic_ns();
        // With the lock held no context ends.
        let pinning = lock(&PINNING);
        let (context, bytes) = {
            let chunks = lock(&CHUNKS);
            (chunks.contexts().first().copied(), chunks.bytes())
        };
        let pin = |context| with_context(context, || host_memory::register_one(context, bytes));
        let pinned = context.and_then(pin);
        drop(pinning);
        let took = monotonic_ns().saturating_sub(begun);
        self.prepare_at_ns = begun.saturating_add(if pinned == Some(true) { 10 * took } else { LOOK_NS });
    }
}

/// Gives back what the program has freed while a graph was captured, after all work of its contexts.
fn discard_freed() {
    // Memory that is away has its places on the host by the order of all chunks.
    if GATE.is_closed() {
        return;
    }
    let freed = lock(&CHUNKS).freed();
    if freed.is_empty() || CAPTURES.any() {
        return;
    }
    // As in a free: after an error of the context nothing uses the memory.
    let contexts: BTreeSet<u64> = freed.values().copied().collect();
    contexts.into_iter().for_each(|context| _ = synchronize(context));
    lock(&CHUNKS).take_freed(&freed).iter().for_each(physical::discard);
}

fn log_move(what: &str, bytes: u64, begun_ns: u64, count: &CopyCount) {
    let us = monotonic_ns().saturating_sub(begun_ns) / 1000;
    let (copies, pauses) = (count.copies.get(), count.pauses.get());
    settings::log(format_args!("{what} bytes={bytes} us={us} copies={copies} pauses={pauses}"));
}
