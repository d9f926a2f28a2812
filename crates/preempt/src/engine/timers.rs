//! What time brings: leases that end, minimum shares, streams that have become idle.

use std::sync::Arc;

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::Notice;
use crate::queue::Queue;
use crate::state::State;

/// How often a stream that is being preempted is looked at.
const LOOK_NS: u64 = 50_000;

enum Due {
    Expired(Arc<Queue>),
    Look(Arc<Queue>, u64),
    Idle(Arc<Queue>),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Does what is due at `now`; when the next thing is.
    pub(super) fn tick(&self, now: u64) -> Option<u64> {
        let (due, next) = self.due(now);
        for due in due {
            match due {
                Due::Expired(queue) => {
                    self.resume(&queue, None);
                    self.observer.notice(Notice::LeaseExpired(queue.id()));
                }
                Due::Look(queue, epoch) => {
                    let _ = self.has_stopped(&queue, epoch);
                }
                Due::Idle(queue) => self.look_idle(&queue, now),
            }
        }
        next
    }

    fn due(&self, now: u64) -> (Vec<Due>, Option<u64>) {
        let (mut due, mut times) = (Vec::new(), Vec::new());
        let mut book = self.book();
        for (_, lane) in book.lanes_mut() {
            let Some(config) = lane.config else { continue };
            let queue = &lane.queue;
            let held = lane.state.is_held();
            if held
                && let Some(until) = lane.hold.until_ns
            {
                if now >= until {
                    due.push(Due::Expired(Arc::clone(queue)));
                    continue;
                }
                times.push(until);
            }
            if lane.state == State::Preempting && lane.hold.level.is_some() {
                due.push(Due::Look(Arc::clone(queue), lane.epoch));
                times.push(now + LOOK_NS);
            }
            if let Some(timeout) = config.task_timeout_ns
                && lane.state == State::Running
                && !lane.closing
                && !(lane.idle.2 && lane.idle.0 == queue.flight.steps())
            {
                let at = lane.idle.1 + timeout;
                times.push(if now < at { at } else { now + timeout });
                due.push(Due::Idle(Arc::clone(&lane.queue)));
            }
        }
        (due, times.into_iter().min())
    }

    /// Tells, once, that nothing has happened on a stream for its timeout.
    fn look_idle(&self, queue: &Arc<Queue>, now: u64) {
        // The look ends before the notice: whoever is told may end the context, which waits for looks.
        let looked = self.with_stream(queue, || {
            self.relaxed(|| {
                if !self.driver.is_capturing(queue.stream()) {
                    self.mark(queue, true);
                }
                queue.flight.retire(&self.driver);
            });
        });
        if looked.is_none() {
            return;
        }
        let steps = queue.flight.steps();
        let mut book = self.book();
        let Some(lane) = book.lane_mut(queue.id()).filter(|lane| !lane.closing) else { return };
        let Some(timeout) = lane.config.and_then(|config| config.task_timeout_ns) else { return };
        if lane.idle.0 != steps || !lane.is_drained() {
            lane.idle = (steps, now, false);
        } else if !lane.idle.2 && now >= lane.idle.1 + timeout {
            lane.idle.2 = true;
            drop(book);
            queue.doze();
            if queue.flight.steps() != steps && queue.stir() {
                self.observer.wake();
            }
            self.observer.notice(Notice::Idle(queue.id()));
        }
    }
}
