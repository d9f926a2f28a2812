//! The hook's own events: which exist, and which are free for reuse.
//!
//! Events end with their context, and the driver may use their handles again. So each event has a number, and a mark whose event has ended
//! is neither used nor kept.

use std::collections::BTreeMap;

use crate::platform::Mark;

/// Free events that are kept.
const MAX_FREE: usize = 64;

/// What becomes of an event that is not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// It is kept for reuse.
    Kept,
    /// Enough are kept: the caller destroys it.
    Surplus,
    /// It has ended with its context.
    Ended,
}

/// The events of a process.
#[derive(Debug, Default)]
pub struct EventPool {
    last_number: u64,
    /// The context of each event that exists, by number.
    contexts: BTreeMap<u64, u64>,
    free: Vec<Mark>,
}

impl EventPool {
    /// No events.
    pub const fn new() -> Self {
        Self { last_number: 0, contexts: BTreeMap::new(), free: Vec::new() }
    }

    /// Takes a free event of a context.
    pub fn take(&mut self, context: u64) -> Option<Mark> {
        let at = self.free.iter().position(|mark| mark.context == context)?;
        Some(self.free.swap_remove(at))
    }

    /// Adds an event that was just created, in use.
    pub fn add(&mut self, context: u64, event: u64) -> Mark {
        self.last_number += 1;
        self.contexts.insert(self.last_number, context);
        Mark { context, event, number: self.last_number }
    }

    /// Whether the event of a mark exists.
    pub fn exists(&self, mark: Mark) -> bool {
        self.contexts.contains_key(&mark.number)
    }

    /// Takes back an event that was in use.
    pub fn put_back(&mut self, mark: Mark) -> Returned {
        if !self.exists(mark) {
            return Returned::Ended;
        }
        if self.free.len() >= MAX_FREE {
            self.contexts.remove(&mark.number);
            return Returned::Surplus;
        }
        self.free.push(mark);
        Returned::Kept
    }

    /// Forgets the events of a context that has ended.
    pub fn forget_context(&mut self, context: u64) {
        self.contexts.retain(|_, of| *of != context);
        self.free.retain(|mark| mark.context != context);
    }
}

#[cfg(test)]
mod tests;
