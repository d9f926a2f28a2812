//! The numbers of a stream's gates, and how far they are open.

use crate::ids::QueueId;

/// How far ahead of the gates placed an open word is: more than a ring holds.
const FAR: u32 = 1 << 20;

/// The gates of one stream.
#[derive(Debug)]
pub(crate) struct Tickets {
    placed: u32,
    word: u32,
    since_ns: u64,
    shut: bool,
    /// The driver did not take the last gate.
    missing: bool,
    needs: Vec<(QueueId, u32)>,
}

impl Default for Tickets {
    fn default() -> Self {
        Self { placed: 0, word: FAR, since_ns: u64::MAX, shut: false, missing: false, needs: Vec::new() }
    }
}

/// Whether gate `number` is passed under `word`.
pub(crate) fn passes(word: u32, number: u32) -> bool {
    word.wrapping_sub(number) < 1 << 31
}

fn further(a: u32, b: u32) -> u32 {
    if passes(a, b) { a } else { b }
}

impl Tickets {
    /// The last gate placed, or about to be; 0 if there never was one.
    pub(crate) fn placed(&self) -> u32 {
        self.placed
    }

    /// The word as it has to be stored.
    pub(crate) fn word(&self) -> u32 {
        self.word
    }

    /// Counts work of `ns`; the number of the gate that has to be placed in front of it, if one is due.
    pub(crate) fn due(&mut self, ns: u64, spacing_ns: u64) -> Option<u32> {
        let due = self.since_ns >= spacing_ns;
        self.since_ns = if due { ns } else { self.since_ns.saturating_add(ns) };
        if !due {
            return None;
        }
        self.placed = self.placed.wrapping_add(1);
        if !self.shut {
            self.word = self.placed.wrapping_add(FAR);
        }
        Some(self.placed)
    }

    /// What the driver said to gate `number`. The next work asks for one again if it was not taken.
    pub(crate) fn answered(&mut self, number: u32, taken: bool) {
        self.missing = !taken;
        if !taken {
            self.since_ns = u64::MAX;
            if self.placed == number {
                self.placed = number.wrapping_sub(1);
            }
        }
    }

    /// Whether the last work is behind no gate, as the driver did not take it.
    pub(crate) fn is_missing(&self) -> bool {
        self.missing
    }

    /// Whether gates are shut.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Shuts all gates behind number `arrived`.
    pub(crate) fn shut_behind(&mut self, arrived: u32) {
        self.shut = true;
        self.word = arrived;
    }

    /// Whether a stream that has come to gate `arrived` waits there for somebody to open it.
    pub(crate) fn stops_at(&self, arrived: u32) -> bool {
        self.shut && !passes(self.word, arrived)
    }

    /// Opens gates that somebody needs who `counts`.
    pub(crate) fn pass_needed(&mut self, counts: impl Fn(QueueId) -> bool) {
        if self.shut {
            let needed = self.needs.iter().filter(|(who, _)| counts(*who)).map(|(_, number)| *number);
            self.word = needed.fold(self.word, further);
        }
    }

    /// Opens all gates.
    pub(crate) fn open(&mut self) {
        self.shut = false;
        self.word = self.placed.wrapping_add(FAR);
    }

    /// Opens what has been placed, and nothing that follows.
    pub(crate) fn pass_placed(&mut self) {
        if self.shut {
            self.word = further(self.word, self.placed);
        }
    }

    /// `who` waits, on the GPU, for something behind gate `number`.
    pub(crate) fn need(&mut self, who: QueueId, number: u32) {
        match self.needs.iter_mut().find(|(known, _)| *known == who) {
            Some((_, known)) => *known = further(*known, number),
            None => self.needs.push((who, number)),
        }
    }

    /// Whether something is needed that a stream has not done which has come to gate `arrived`.
    pub(crate) fn is_needed(&self, arrived: u32, counts: impl Fn(QueueId) -> bool) -> bool {
        self.needs.iter().any(|(who, number)| counts(*who) && passes(*number, arrived))
    }

    /// Whoever waits for nothing any more.
    pub(crate) fn forget(&mut self, who: QueueId) {
        self.needs.retain(|(known, _)| *known != who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_stay_open_when_their_numbers_run_over() {
        let mut tickets = Tickets { placed: u32::MAX - 2, ..Tickets::default() };
        for _ in 0..5 {
            let number = tickets.due(100, 50).unwrap();
            assert!(passes(tickets.word(), number));
        }
        tickets.shut_behind(u32::MAX);
        assert!((0..3).all(|back| tickets.stops_at(tickets.placed().wrapping_sub(back))));
        assert!((3..1024).all(|back| !tickets.stops_at(tickets.placed().wrapping_sub(back))));
    }

    #[test]
    fn a_gate_is_placed_when_enough_work_has_gone_by() {
        let mut tickets = Tickets::default();
        let placed: Vec<_> = (0..8).map(|_| tickets.due(20, 50).is_some()).collect();
        assert_eq!(placed, [true, false, false, true, false, false, true, false]);
    }

    #[test]
    fn shut_gates_let_pass_what_others_need_and_no_more() {
        let mut tickets = Tickets::default();
        for _ in 0..5 {
            tickets.due(100, 50);
        }
        tickets.need(QueueId(1), 2);
        tickets.need(QueueId(2), 4);
        tickets.shut_behind(0);
        tickets.pass_needed(|who| who == QueueId(1));
        assert!(passes(tickets.word(), 2) && !passes(tickets.word(), 3));
        tickets.pass_needed(|_| true);
        assert!(passes(tickets.word(), 4) && !passes(tickets.word(), 5));
    }
}
