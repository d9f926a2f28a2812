//! When the disturbances of a round begin, and when each ends.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_load::random_calls::Random;

/// Random times. `U` ends a disturbance.
pub(super) struct Schedule<U> {
    pub(super) random: Random,
    next: Instant,
    undos: Vec<(Instant, U)>,
}

impl<U> Schedule<U> {
    pub(super) fn new(random: Random) -> Self {
        Self { random, next: Instant::now(), undos: Vec::new() }
    }

    /// A random time.
    pub(super) fn between(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.random.below(to_ms - from_ms))
    }

    /// Whether the next disturbance is due. If so, the one after it follows between these times from now.
    pub(super) fn is_next_due(&mut self, from_ms: u64, to_ms: u64) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.between(from_ms, to_ms);
        }
        is_due
    }

    /// A disturbance has begun, and is to end after this time.
    pub(super) fn end_after(&mut self, time: Duration, undo: U) {
        self.undos.push((Instant::now() + time, undo));
    }

    /// The disturbances that are to end now.
    pub(super) fn take_due(&mut self) -> Vec<U> {
        let now = Instant::now();
        self.undos.extract_if(.., |(at, _)| *at <= now).map(|(_, undo)| undo).collect()
    }

    /// All disturbances that have not ended.
    pub(super) fn into_undos(self) -> impl Iterator<Item = U> {
        self.undos.into_iter().map(|(_, undo)| undo)
    }
}

/// Has a stopped process run again. It may have been killed meanwhile: SIGCONT harms no other process that has its id now.
pub(super) fn resume(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
}
