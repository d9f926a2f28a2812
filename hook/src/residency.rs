//! Memory that may leave the GPU. If the manager has sent host memory, allocations of this process are made in chunks behind addresses that
//! never change, and a thread moves all of them to the host and back, as the grant page tells. Calls that may use the memory wait
//! meanwhile.
//!
//! Without host memory a call costs one load, and nothing else happens.

mod allocation;
mod mover;
mod physical;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sluice_hook_core::lock;
use sluice_hook_core::residency::{ChunkTable, Pass, ResidencyGate};

use crate::guard::{Uncancelled, guarded};
use crate::leaked::Leaked;
use crate::process::ManagedDevice;
use crate::{fork, host_memory, thread_state};

pub(crate) use allocation::{allocate, free, size_of};

/// Calls pass [`GATE`] only if this is set: the one word that a call loads.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
static IS_ON: AtomicBool = AtomicBool::new(false);

static GATE: ResidencyGate = ResidencyGate::off();

/// Held while memory is allocated, freed or moved.
static CHUNKS: Mutex<ChunkTable> = Mutex::new(ChunkTable::new());

/// The device whose memory may leave: the only one of the process.
static DEVICE: Leaked<ManagedDevice> = Leaked::none();

/// Bytes that are about to be allocated.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// Threads that wait for memory to return, or for room.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Threads that wait sleep here. It protects no data.
static SLEEPERS: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// How long a thread sleeps until it looks again.
const SLEEP: Duration = Duration::from_millis(5);

/// For so long a thread waits for a drain. Work of the GPU may wait for what this thread is about to do.
const LONGEST_DRAIN_NS: u64 = 5_000_000_000;

thread_local! {
    /// Calls of this thread that have passed the gate. Inside one the driver may call another.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// A call that may use movable memory. The memory stays on the GPU until the call ends.
pub(crate) struct Call {
    _pass: Option<Pass<'static>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Begins a call that may use movable memory: waits until it is on the GPU. `None`: no memory of this process leaves.
#[inline]
pub(crate) fn enter() -> Option<Call> {
    if IS_ON.load(Relaxed) { enter_gate() } else { None }
}

#[cold]
fn enter_gate() -> Option<Call> {
    if fork::has_forked() {
        return None;
    }
    let pass = if INSIDE.get() > 0 { None } else { Some(guarded(None, pass_gate)?) };
    INSIDE.set(INSIDE.get() + 1);
    Some(Call { _pass: pass })
}

fn pass_gate() -> Option<Pass<'static>> {
    let thread = thread_state::with_thread(sluice_hook_core::thread_state::ThreadState::id);
    if let Some(pass) = GATE.try_enter(thread) {
        return Some(pass);
    }
    let _waiter = Waiter::begin();
    let mut draining_since = None;
    loop {
        if let Some(pass) = GATE.try_enter(thread) {
            return Some(pass);
        }
        if GATE.is_draining() {
            let now = sluice_sys::clock::monotonic_ns();
            if now.saturating_sub(*draining_since.get_or_insert(now)) >= LONGEST_DRAIN_NS {
                GATE.reopen();
            }
        }
        sleep_until_change();
    }
}

/// A thread that waits for memory, and is reported to the manager.
struct Waiter {
    _uncancelled: Uncancelled,
}

impl Waiter {
    fn begin() -> Self {
        if WAITING.fetch_add(1, SeqCst) == 0 {
            mover::wake();
        }
        Self { _uncancelled: Uncancelled::begin() }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, SeqCst);
    }
}

fn sleep_until_change() {
    drop(CHANGED.wait_timeout(lock(&SLEEPERS), SLEEP));
}

/// What waiting threads wait for may have come.
fn notify() {
    drop(lock(&SLEEPERS));
    CHANGED.notify_all();
}

/// From here on allocations are made in chunks, and calls pass the gate. `false` if the system has no thread for the moves.
fn switch_on(managed: &'static ManagedDevice) -> bool {
    // With the lock held: no thread makes chunks before the gate is on.
    let _chunks = lock(&CHUNKS);
    if !IS_ON.load(Acquire) {
        DEVICE.share(managed);
        GATE.switch_on();
        if !mover::start(managed) {
            GATE.switch_off();
            return false;
        }
        IS_ON.store(true, Release);
    }
    true
}

/// In the child of a fork: no call waits.
pub(crate) fn abandon() {
    IS_ON.store(false, Release);
    GATE.switch_off();
}

/// Keeps the mover off the chunks while a context ends.
pub(crate) fn begin_context_end() -> Option<MutexGuard<'static, ChunkTable>> {
    IS_ON.load(Acquire).then(|| lock(&CHUNKS))
}

/// The context has ended: what was allocated in it is given back.
pub(crate) fn context_ended(chunks: Option<MutexGuard<'static, ChunkTable>>, context: u64) {
    let Some(mut chunks) = chunks else { return };
    host_memory::context_ended(context);
    for range in chunks.take_context(context) {
        physical::discard(&range);
    }
    drop(chunks);
    mover::wake();
}
