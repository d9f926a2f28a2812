//! The numbers of a stream's gates, and up to which number they are open.

use crate::ids::QueueId;

/// How far an open word is ahead of the placed gates: more than the driver's ring holds.
const OPEN_MARGIN: u32 = 1 << 20;

/// The gates of one stream.
#[derive(Debug)]
pub(crate) struct GateSequence {
    placed: u32,
    word: u32,
    since_ns: u64,
    closed: bool,
    /// The driver refused the last gate.
    last_refused: bool,
    needed_by: Vec<(QueueId, u32)>,
}

impl Default for GateSequence {
    fn default() -> Self {
        Self {
            placed: 0,
            word: OPEN_MARGIN,
            since_ns: u64::MAX,
            closed: false,
            last_refused: false,
            needed_by: Vec::new(),
        }
    }
}

/// Whether the GPU passes gate `number` under `word`.
pub(crate) fn passes(word: u32, number: u32) -> bool {
    word.wrapping_sub(number) < 1 << 31
}

fn later_gate(a: u32, b: u32) -> u32 {
    if passes(a, b) { a } else { b }
}

impl GateSequence {
    /// The last gate placed, or about to be placed; 0 if there was none.
    pub(crate) fn placed(&self) -> u32 {
        self.placed
    }

    /// The word that has to be stored.
    pub(crate) fn word(&self) -> u32 {
        self.word
    }

    /// Counts work of `ns`. Returns the number of the gate that has to be placed in front of it, if one is due.
    pub(crate) fn due(&mut self, ns: u64, spacing_ns: u64) -> Option<u32> {
        let due = self.since_ns >= spacing_ns;
        self.since_ns = if due { ns } else { self.since_ns.saturating_add(ns) };
        if !due {
            return None;
        }
        self.placed = self.placed.wrapping_add(1);
        if !self.closed {
            self.word = self.placed.wrapping_add(OPEN_MARGIN);
        }
        Some(self.placed)
    }

    /// Notes whether the driver took gate `number`. If it did not, the next work asks for a gate again.
    pub(crate) fn gate_submitted(&mut self, number: u32, taken: bool) {
        self.last_refused = !taken;
        if !taken {
            self.since_ns = u64::MAX;
            if self.placed == number {
                self.placed = number.wrapping_sub(1);
            }
        }
    }

    /// Whether no gate is in front of the last work because the driver refused it.
    pub(crate) fn is_last_refused(&self) -> bool {
        self.last_refused
    }

    /// Whether gates are closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closes all gates behind number `arrived`.
    pub(crate) fn close_behind(&mut self, arrived: u32) {
        self.closed = true;
        self.word = arrived;
    }

    /// Whether a stream that has reached gate `arrived` waits there for the gate to be opened.
    pub(crate) fn stops_at(&self, arrived: u32) -> bool {
        self.closed && !passes(self.word, arrived)
    }

    /// Opens the gates that queues selected by `counts` need.
    pub(crate) fn pass_needed(&mut self, counts: impl Fn(QueueId) -> bool) {
        if self.closed {
            let needed =
                self.needed_by.iter().filter(|(waiter, _)| counts(*waiter)).map(|(_, number)| *number);
            self.word = needed.fold(self.word, later_gate);
        }
    }

    /// Opens all gates.
    pub(crate) fn open(&mut self) {
        self.closed = false;
        self.word = self.placed.wrapping_add(OPEN_MARGIN);
    }

    /// Opens the gates placed so far, and none that follows.
    pub(crate) fn pass_placed(&mut self) {
        if self.closed {
            self.word = later_gate(self.word, self.placed);
        }
    }

    /// Notes that queue `waiter` waits, on the GPU, for something behind gate `number`.
    pub(crate) fn add_need(&mut self, waiter: QueueId, number: u32) {
        match self.needed_by.iter_mut().find(|(known, _)| *known == waiter) {
            Some((_, known)) => *known = later_gate(*known, number),
            None => self.needed_by.push((waiter, number)),
        }
    }

    /// Whether a queue selected by `counts` needs something that a stream at gate `arrived` has not done.
    pub(crate) fn is_needed(&self, arrived: u32, counts: impl Fn(QueueId) -> bool) -> bool {
        self.needed_by.iter().any(|(waiter, number)| counts(*waiter) && passes(*number, arrived))
    }

    /// Removes the needs of a queue that waits for nothing any more.
    pub(crate) fn remove_needs_of(&mut self, waiter: QueueId) {
        self.needed_by.retain(|(known, _)| *known != waiter);
    }
}

#[cfg(test)]
mod tests;
