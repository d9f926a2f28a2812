//! The thread that moves the memory of this process: to the host when the manager wants it, and back when it allows that.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use sluice_comm::page::MovableMemory;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Driver, Stream};
use sluice_hook_core::residency::ChunkTable;
use sluice_sys::clock::monotonic_ns;

use super::physical;
use super::state::{CHUNKS, DEVICE, GATE, PENDING, WAITING, notify};
use crate::captures::CAPTURES;
use crate::gpu::{relax_capture_mode, with_context};
use crate::process::ManagedDevice;
use crate::{fork, host_memory, known_contexts, real, settings, thread, thread_state};

/// How long the thread sleeps unless the manager or a thread of the program wakes it.
const SLEEP: Duration = Duration::from_millis(20);
/// How long it waits at first until it tries again to leave, and at most.
const RETRY_NS: u64 = 100_000_000;
const LONGEST_RETRY_NS: u64 = 10_000_000_000;
/// How long the calls before a drain may take. A thread that was cancelled in one counts for ever.
const LONGEST_DRAIN_NS: u64 = 10_000_000_000;
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
        Mover { managed, retry_at_ns: 0, retry_ns: RETRY_NS }.run();
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
    /// After a failure to leave: when to try again, and how long to wait after the next failure.
    retry_at_ns: u64,
    retry_ns: u64,
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
            if (bytes == 0 || has_room(self.managed, bytes)) && self.return_all() {
                GATE.open();
                notify();
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
        if !copy(self.managed, &chunks, Direction::Out) {
            GATE.open();
            return false;
        }
        chunks.ranges_mut().for_each(physical::empty);
        log_move("memory left the GPU", bytes, begun);
        true
    }

    /// Moves all memory back. `false`: the GPU has no room for it yet.
    fn return_all(&self) -> bool {
        let mut chunks = lock(&CHUNKS);
        let Ok(device) = c_int::try_from(self.managed.ordinal) else { return false };
        let begun = monotonic_ns();
        let away = place_of(&chunks);
        let filled = chunks.ranges_mut().try_for_each(|range| physical::fill(range, device));
        if filled.is_ok() {
            self.managed.device.link.report_memory(MovableMemory { moves: true, ..away });
        }
        match filled {
            Err(CUresult::ERROR_OUT_OF_MEMORY) => {
                chunks.ranges_mut().for_each(physical::empty);
                false
            }
            Ok(()) if copy(self.managed, &chunks, Direction::In) => {
                log_move("memory returned to the GPU", chunks.bytes(), begun);
                true
            }
            // The context has an error, as the program's next call shows. Without its memory the program can read no wrong byte.
            _ => {
                chunks.ranges_mut().for_each(physical::empty);
                true
            }
        }
    }
}

/// Gives back what the program has freed while a graph was captured, after all work of its contexts.
fn discard_freed() {
    let contexts = lock(&CHUNKS).contexts_of_freed();
    if contexts.is_empty() || CAPTURES.any() {
        return;
    }
    // As in a free: after an error of the context nothing uses the memory.
    contexts.into_iter().for_each(|context| _ = synchronize(context));
    lock(&CHUNKS).take_freed().iter().for_each(physical::discard);
}

fn log_move(what: &str, bytes: u64, begun_ns: u64) {
    let us = monotonic_ns().saturating_sub(begun_ns) / 1000;
    settings::log(format_args!("{what} bytes={bytes} us={us}"));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

/// Copies all chunks to their places in the host memory or from there, and waits for the end.
fn copy(managed: &ManagedDevice, chunks: &ChunkTable, direction: Direction) -> bool {
    let started = chunks.places().all(|(context, chunk, place)| {
        let Some(host) = host_memory::at(place, chunk.bytes) else { return false };
        let size = usize::try_from(chunk.bytes).unwrap_or(usize::MAX);
        let table = real::table();
        let call = || match direction {
            Direction::Out => table.cuMemcpyDtoHAsync_v2.map(|copy| {
                // SAFETY: the host memory has room for the chunk there, and nothing else uses it or the chunk, which is mapped.
                unsafe { copy(host, chunk.address, size, std::ptr::null_mut()) }
            }),
            Direction::In => table.cuMemcpyHtoDAsync_v2.map(|copy| {
                // SAFETY: as above.
                unsafe { copy(chunk.address, host, size, std::ptr::null_mut()) }
            }),
        };
        let submit = || {
            host_memory::register(context, chunks.bytes());
            as_work(managed, || call().unwrap_or(CUresult::ERROR_NOT_SUPPORTED))
        };
        with_context(context, submit) == Some(CUresult::SUCCESS)
    });
    // Also after a failure: no copy may run when the memory is unmapped.
    let mut contexts = chunks.contexts().into_iter();
    contexts.all(synchronize) && started
}

/// Calls `submit`, which submits a copy to the legacy default stream. It counts as work of the process: the channel groups of a process
/// without work may be disabled.
fn as_work(managed: &ManagedDevice, submit: impl FnOnce() -> CUresult) -> CUresult {
    let stream = Stream::new(0, false, 0);
    let is_noted = thread_state::with_thread(|thread| {
        managed.device.needs_note(stream, thread) && managed.device.begin_work(stream, thread)
    });
    let result = submit();
    if is_noted {
        managed.device.end_submission();
    }
    result
}

/// Waits for all work of a context. `false` if the context has an error.
pub(super) fn synchronize(context: u64) -> bool {
    let wait = || {
        // SAFETY: no arguments; waits for the context that `with_context` made current.
        real::table().cuCtxSynchronize.map(|wait| unsafe { wait() })
    };
    with_context(context, wait).flatten() == Some(CUresult::SUCCESS)
}
