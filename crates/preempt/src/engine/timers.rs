//! Timers: preemptions that last too long, checks whether a stream has stopped, and idle notices.

use std::sync::Arc;

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::Notice;
use crate::queue::Queue;
use crate::queue_table::IdleWatch;
use crate::stream_state::StreamState;

/// Interval at which a stream that is being preempted is checked.
const STOP_CHECK_NS: u64 = 50_000;

enum Due {
    OutageEnded(Arc<Queue>),
    CheckStop(Arc<Queue>, u64),
    CheckIdle(Arc<Queue>),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Does what is due at `now`. Returns when the next timer is due.
    pub(super) fn run_timers(&self, now: u64) -> Option<u64> {
        let (due, next) = self.due(now);
        for due in due {
            match due {
                Due::OutageEnded(queue) => {
                    self.resume(&queue, None);
                    self.observer.notice(Notice::OutageEnded(queue.id()));
                }
                Due::CheckStop(queue, epoch) => {
                    let _ = self.check_stopped(&queue, epoch);
                }
                Due::CheckIdle(queue) => self.check_idle(&queue, now),
            }
        }
        next
    }

    fn due(&self, now: u64) -> (Vec<Due>, Option<u64>) {
        let (mut due, mut times) = (Vec::new(), Vec::new());
        let mut table = self.lock_table();
        for queue_state in table.queue_states_mut() {
            let Some(config) = queue_state.config else { continue };
            let queue = &queue_state.queue;
            let held = queue_state.state.is_under_preemption();
            if held && let Some(until) = queue_state.preemption.until_ns {
                if now >= until {
                    due.push(Due::OutageEnded(Arc::clone(queue)));
                    continue;
                }
                times.push(until);
            }
            if queue_state.state == StreamState::Preempting && queue_state.preemption.level.is_some() {
                due.push(Due::CheckStop(Arc::clone(queue), queue_state.epoch));
                times.push(now + STOP_CHECK_NS);
            }
            if let Some(timeout) = config.task_timeout_ns
                && queue_state.state == StreamState::Running
                && !queue_state.closing
                && !(queue_state.idle.notified
                    && queue_state.idle.progress_count == queue.in_flight.progress_count())
            {
                let at = queue_state.idle.since_ns + timeout;
                times.push(if now < at { at } else { now + timeout });
                due.push(Due::CheckIdle(Arc::clone(&queue_state.queue)));
            }
        }
        (due, times.into_iter().min())
    }

    /// Reports, once, that a stream made no progress for its timeout.
    fn check_idle(&self, queue: &Arc<Queue>, now: u64) {
        // The driver use ends before the notice: its receiver may end the context, which waits for driver uses.
        let looked = self.with_stream(queue, || {
            self.with_relaxed_capture(|| {
                if !self.driver.is_capturing(queue.stream()) {
                    self.mark(queue, true);
                }
                queue.in_flight.retire(&self.driver);
            });
        });
        if looked.is_none() {
            return;
        }
        let progress_count = queue.in_flight.progress_count();
        let mut table = self.lock_table();
        let Some(queue_state) = table.queue_state_mut(queue.id()).filter(|queue_state| !queue_state.closing)
        else {
            return;
        };
        let Some(timeout) = queue_state.config.and_then(|config| config.task_timeout_ns) else { return };
        if queue_state.idle.progress_count != progress_count || !queue_state.is_drained() {
            queue_state.idle = IdleWatch { progress_count, since_ns: now, notified: false };
        } else if !queue_state.idle.notified && now >= queue_state.idle.since_ns + timeout {
            queue_state.idle.notified = true;
            drop(table);
            queue.request_wake();
            if queue.in_flight.progress_count() != progress_count && queue.take_wake_request() {
                self.observer.wake();
            }
            self.observer.notice(Notice::Idle(queue.id()));
        }
    }
}
