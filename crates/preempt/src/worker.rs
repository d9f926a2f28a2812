//! The worker thread that submits pending commands. It is started when the first command is queued.

use std::time::Duration;

use crate::driver::{Clock, Driver, Observer};
use crate::engine::{Engine, NextDispatch};
use crate::sync::{Condvar, Mutex, lock, wait};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SignalState {
    notified: bool,
    ended: bool,
    started: bool,
}

/// The signal by which `Observer::wake` wakes the worker.
#[derive(Debug)]
pub struct WakeSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

impl Default for WakeSignal {
    fn default() -> Self {
        Self { state: Mutex::new(SignalState::default()), changed: Condvar::new() }
    }
}

impl WakeSignal {
    /// Wakes the worker. Returns `true` if the caller has to start one, which calls `run`.
    pub fn notify(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.notified {
            state.notified = true;
            self.changed.notify_all();
        }
        !std::mem::replace(&mut state.started, true)
    }

    /// The worker that `notify` asked for could not be started. The next `notify` asks again.
    pub fn not_started(&self) {
        lock(&self.state).started = false;
    }

    /// Ends the worker after its next dispatch.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// Waits for a notification, at most for `at_most` if it is given, and clears it. Returns `false` if the worker is to end.
    pub fn wait_for(&self, at_most: Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        while !state.notified && !state.ended {
            state = wait(&self.changed, state, at_most);
            if at_most.is_some() {
                break;
            }
        }
        state.notified = false;
        !state.ended
    }
}

/// Dispatches until the signal ends it. A notification during `dispatch` is seen afterwards, so none is lost.
pub fn run<D: Driver, C: Clock, O: Observer>(engine: &Engine<D, C, O>, signal: &WakeSignal) {
    engine.driver().exchange_capture_relaxed(true);
    loop {
        let at_most = match engine.dispatch() {
            NextDispatch::WhenWoken => None,
            NextDispatch::At(at) => Some(Duration::from_nanos(at.saturating_sub(engine.clock().now_ns()))),
        };
        if !signal.wait_for(at_most) {
            return;
        }
    }
}
