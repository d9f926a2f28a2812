//! The gate of calls that may use memory which may have left the GPU.
//!
//! ```text
//!  Off ─first chunk─▶ Open ─begin_drain─▶ Draining ─close─▶ Closed
//!                      ▲ ◀────reopen─────────┘               │
//!                      └──────────────open───────────────────┘
//! ```
//! A call that has passed is counted until it ends. After the drain has begun no further call passes, so once no call is counted and the GPU
//! has done the work of the calls before, nothing uses the memory.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

const OFF: u32 = 0;
const OPEN: u32 = 1;
const DRAINING: u32 = 2;
const CLOSED: u32 = 3;

/// Counters of calls. Threads share them by number.
const SHARDS: usize = 16;

/// A counter on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(AtomicUsize);

/// The gate of one device.
#[derive(Debug)]
pub struct ResidencyGate {
    state: AtomicU32,
    calls: [Shard; SHARDS],
}

/// A call that has passed. It ends with this.
#[derive(Debug)]
pub struct Pass<'g>(&'g AtomicUsize);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

impl ResidencyGate {
    /// A gate that counts no calls: all memory stays.
    pub const fn off() -> Self {
        Self { state: AtomicU32::new(OFF), calls: [const { Shard(AtomicUsize::new(0)) }; SHARDS] }
    }

    /// From here on calls have to pass. Called before there is memory that may leave.
    pub fn switch_on(&self) {
        let _was_on = self.state.compare_exchange(OFF, OPEN, SeqCst, SeqCst);
    }

    /// Lets all calls pass from here on, uncounted: memory stays where it is.
    pub fn switch_off(&self) {
        self.state.store(OFF, SeqCst);
    }

    /// Lets a call of thread number `thread` pass; `None` while the memory leaves or is away.
    pub fn try_enter(&self, thread: u32) -> Option<Pass<'_>> {
        let shard = &self.calls[thread as usize % SHARDS].0;
        // Before the state is read: a drain that does not see this call has been seen by it.
        shard.fetch_add(1, SeqCst);
        let pass = Pass(shard);
        matches!(self.state.load(SeqCst), OFF | OPEN).then_some(pass)
    }

    /// Lets no further call pass. `false` if the gate was not open.
    pub fn begin_drain(&self) -> bool {
        self.state.compare_exchange(OPEN, DRAINING, SeqCst, SeqCst).is_ok()
    }

    /// Whether a drain has begun and has neither ended nor been given up.
    pub fn is_draining(&self) -> bool {
        self.state.load(SeqCst) == DRAINING
    }

    /// Whether all calls that have passed have ended.
    pub fn is_quiet(&self) -> bool {
        self.calls.iter().all(|shard| shard.0.load(SeqCst) == 0)
    }

    /// Ends the drain: the memory may be moved. `false` if a thread has given the drain up.
    pub fn close(&self) -> bool {
        self.state.compare_exchange(DRAINING, CLOSED, SeqCst, SeqCst).is_ok()
    }

    /// Gives the drain up. `false` if there is none, or it has ended.
    pub fn reopen(&self) -> bool {
        self.state.compare_exchange(DRAINING, OPEN, SeqCst, SeqCst).is_ok()
    }

    /// Whether the memory is away, or moves.
    pub fn is_closed(&self) -> bool {
        self.state.load(SeqCst) == CLOSED
    }

    /// The memory is on the GPU: lets calls pass.
    pub fn open(&self) {
        let _was_closed = self.state.compare_exchange(CLOSED, OPEN, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn no_call_passes_from_the_begin_of_a_drain_until_the_memory_has_returned() {
        let gate = ResidencyGate::off();
        assert!(!gate.begin_drain());
        gate.switch_on();
        let pass = gate.try_enter(3);
        assert!(pass.is_some() && gate.begin_drain() && !gate.is_quiet());
        assert!(gate.try_enter(3).is_none(), "a call passes during the drain");
        drop(pass);
        assert!(gate.is_quiet() && gate.close() && gate.is_closed());
        assert!(gate.try_enter(0).is_none() && !gate.reopen());
        gate.open();
        assert!(gate.try_enter(0).is_some());
    }

    #[test]
    fn drain_that_a_thread_has_given_up_does_not_close() {
        let gate = ResidencyGate::off();
        gate.switch_on();
        assert!(gate.begin_drain() && gate.reopen() && !gate.close() && !gate.is_closed());
        assert!(gate.try_enter(1).is_some());
    }

    #[test]
    fn calls_of_many_threads_never_run_while_the_gate_is_closed() {
        let (gate, away, ended) = (ResidencyGate::off(), AtomicBool::new(false), AtomicBool::new(false));
        gate.switch_on();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gate, away, ended) = (&gate, &away, &ended);
                scope.spawn(move || {
                    while !ended.load(Relaxed) {
                        if let Some(_pass) = gate.try_enter(thread) {
                            assert!(!away.load(SeqCst), "a call runs while the memory is away");
                        }
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..2_000 {
                assert!(gate.begin_drain());
                while !gate.is_quiet() {
                    std::thread::yield_now();
                }
                assert!(gate.close());
                away.store(true, SeqCst);
                std::thread::yield_now();
                away.store(false, SeqCst);
                gate.open();
            }
            ended.store(true, Relaxed);
        });
    }
}
