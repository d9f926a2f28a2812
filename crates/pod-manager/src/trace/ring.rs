//! The last events, for readers that come at their own pace.

use super::event::TraceEvent;
use std::collections::VecDeque;

/// The last events. Each has a number, one higher than that of the event before.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<TraceEvent>,
    capacity: usize,
    /// The number of the next event.
    next: u64,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::with_capacity(capacity), capacity, next: 0 }
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds an event, in place of the oldest one if the ring is full.
    pub(super) fn push(&mut self, event: TraceEvent) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.next += 1;
    }

    /// The events from number `from` on, at most `most` of them; `None` if the first of them was overwritten.
    pub(super) fn read(&self, from: u64, most: usize) -> Option<Vec<TraceEvent>> {
        let oldest = self.next - self.events.len() as u64;
        let skipped = usize::try_from(from.checked_sub(oldest)?).ok()?;
        Some(self.events.iter().skip(skipped).take(most).cloned().collect())
    }
}

#[cfg(test)]
mod tests;
