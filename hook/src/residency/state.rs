//! What the threads of the program and the thread that moves memory share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use sluice_hook_core::lock;
use sluice_hook_core::residency::{ChunkTable, ResidencyGate};

use crate::leaked::Leaked;
use crate::process::ManagedDevice;

/// Calls pass [`GATE`] only if this is set: the one word that a call loads.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
pub(super) static IS_ON: AtomicBool = AtomicBool::new(false);

pub(super) static GATE: ResidencyGate = ResidencyGate::off();

/// Held while memory is allocated, freed or moved.
pub(super) static CHUNKS: Mutex<ChunkTable> = Mutex::new(ChunkTable::new());

/// Held while host memory is pinned ahead, and while a context ends. Locked before [`CHUNKS`], which a pin must not hold: the program allocates
/// and frees meanwhile.
pub(super) static PINNING: Mutex<()> = Mutex::new(());

/// The device whose memory may leave: the only one of the process.
pub(super) static DEVICE: Leaked<ManagedDevice> = Leaked::none();

/// Bytes that are about to be allocated.
pub(super) static PENDING: AtomicU64 = AtomicU64::new(0);

/// Threads that wait for memory to return, or for room.
pub(super) static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Threads that wait sleep here. It protects no data.
static SLEEPERS: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// How long a thread sleeps until it looks again.
const SLEEP: Duration = Duration::from_millis(5);

pub(super) fn sleep_until_change() {
    drop(CHANGED.wait_timeout(lock(&SLEEPERS), SLEEP));
}

/// What waiting threads wait for may have come.
pub(super) fn notify() {
    drop(lock(&SLEEPERS));
    CHANGED.notify_all();
}
