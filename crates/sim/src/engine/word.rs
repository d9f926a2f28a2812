//! Words in memory for which streams and hold kernels wait. The engine does not read memory: its caller reports
//! changes.

use super::stream::Progress;
use super::{Command, Engine, OwnerId, Record, StreamId};
use crate::params;
use std::collections::{BTreeMap, HashMap};

/// The comparison of a word with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// The word is not less than the value, modulo the word's size.
    AtLeast,
    /// The word equals the value.
    Equal,
    /// Word and value have a bit in common.
    And,
    /// Word and value both lack a bit.
    Nor,
}

impl Compare {
    pub(crate) const ALL: [Self; 4] = [Self::AtLeast, Self::Equal, Self::And, Self::Nor];
}

/// The condition for which a stream waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Address of the word, in the memory of the stream's process.
    pub address: u64,
    /// The value with which it is compared.
    pub value: u64,
    /// The comparison.
    pub compare: Compare,
    /// Whether the word has 64 bits, otherwise 32.
    pub is_wide: bool,
}

impl Condition {
    /// Whether a word of this value fulfils the condition.
    pub fn holds(&self, word: u64) -> bool {
        let mask = if self.is_wide { u64::MAX } else { u64::from(u32::MAX) };
        let (word, value) = (word & mask, self.value & mask);
        match self.compare {
            Compare::AtLeast => word.wrapping_sub(value) & mask <= mask >> 1,
            Compare::Equal => word == value,
            Compare::And => word & value != 0,
            Compare::Nor => !(word | value) & mask != 0,
        }
    }
}

/// The last reported value of a word, and the streams that wait for it.
#[derive(Debug, Default)]
struct Word {
    value: u64,
    waiting: Vec<StreamId>,
}

/// All reported words, and memory operations in progress.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: HashMap<(OwnerId, u64), Word>,
    /// Streams with a memory operation in progress, by the time at which it is done.
    done: BTreeMap<(u64, u64), StreamId>,
    count: u64,
}

impl Words {
    pub(super) fn next_event(&self) -> Option<u64> {
        self.done.first_key_value().map(|((at, _), _)| *at)
    }

    fn done_at(&mut self, at: u64, stream: StreamId) {
        self.count += 1;
        self.done.insert((at, self.count), stream);
    }

    pub(super) fn value(&self, owner: OwnerId, address: u64) -> u64 {
        self.known.get(&(owner, address)).map_or(0, |word| word.value)
    }

    pub(super) fn forget(&mut self, gone: OwnerId) {
        self.known.retain(|(owner, _), _| *owner != gone);
    }
}

impl Engine {
    /// Sets the value of a word in a process's memory.
    pub fn set_word(&mut self, owner: OwnerId, address: u64, value: u64) {
        let word = self.words.known.entry((owner, address)).or_default();
        if word.value == value {
            return;
        }
        word.value = value;
        for id in std::mem::take(&mut word.waiting) {
            self.mem_op(id);
        }
        self.show_word(owner, address, value);
        self.settle();
    }

    /// Shows a word to the hold kernels that poll it.
    pub(super) fn show_word(&mut self, owner: OwnerId, address: u64, value: u64) {
        for (task, hold) in self
            .runlist
            .set_word(owner, address, value, self.now)
            .into_iter()
            .filter_map(|task| Some((task, task.hold?)))
        {
            self.records.push(Record { stream: task.stream, tag: hold.times[1], at_ns: self.now });
        }
    }

    /// Executes the memory operation that is the first command of a stream.
    pub(super) fn mem_op(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let Some(Command::MemOp(condition)) = stream.queue.front().map(|op| &op.command) else { return };
        let owner = self.runlist.groups.get(&stream.group).map(|group| group.owner);
        match (condition, owner) {
            (Some(condition), Some(owner)) => {
                let word = self.words.known.entry((owner, condition.address)).or_default();
                if condition.holds(word.value) {
                    self.words.done_at(self.now + params::MEM_OP_NS, id);
                } else {
                    word.waiting.push(id);
                }
            }
            _ => self.words.done_at(self.now + params::MEM_OP_NS, id),
        }
    }

    pub(super) fn mem_ops_due(&mut self) {
        while let Some(first) = self.words.done.first_entry().filter(|first| first.key().0 <= self.now) {
            let id = first.remove();
            let op = self.streams.get_mut(&id).and_then(|stream| stream.queue.front_mut());
            if let Some(Progress::Begun { left, .. }) = op.map(|op| &mut op.progress) {
                *left = 0;
                self.complete_if_done(id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
