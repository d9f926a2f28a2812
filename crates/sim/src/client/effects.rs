//! Effects of commands on memory, kept until the commands have completed.

use crate::wire::region::Region;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The effect of a command on memory.
pub type Effect = Box<dyn FnOnce() + Send>;

struct Pending {
    ticket: u64,
    seq: u64,
    effect: Effect,
}

/// Effects of all streams of the process that have not been applied.
#[derive(Default)]
pub(super) struct Effects(Mutex<HashMap<usize, VecDeque<Pending>>>);

impl Effects {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, VecDeque<Pending>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an effect until command `seq` of the stream in `slot` has completed.
    pub(super) fn keep(&self, slot: usize, ticket: u64, seq: u64, effect: Effect) {
        self.lock().entry(slot).or_default().push_back(Pending { ticket, seq, effect });
    }

    /// Applies the effects of everything completed, in order of submission.
    ///
    /// That order respects streams and dependencies: a command is submitted after those that it waits for. One
    /// reading of the progress of all streams therefore never shows a command complete without them.
    pub(super) fn apply_completed(&self, region: &Region) {
        let mut pending = self.lock();
        if pending.is_empty() {
            return;
        }
        let slots: Vec<usize> = pending.keys().copied().collect();
        let completed: HashMap<usize, u64> =
            region.snapshot(|| slots.iter().map(|slot| (*slot, region.completed(*slot))).collect());
        let is_due = |slot: usize, first: &Pending| completed.get(&slot).is_some_and(|at| *at >= first.seq);
        let first = |pending: &HashMap<usize, VecDeque<Pending>>, slot: usize| {
            pending
                .get(&slot)?
                .front()
                .filter(|first| is_due(slot, first))
                .map(|first| Reverse((first.ticket, slot)))
        };
        let mut due: BinaryHeap<_> = slots.iter().filter_map(|slot| first(&pending, *slot)).collect();
        while let Some(Reverse((_, slot))) = due.pop() {
            if let Some(one) = pending.get_mut(&slot).and_then(VecDeque::pop_front) {
                (one.effect)();
            }
            due.extend(first(&pending, slot));
        }
        pending.retain(|_, queue| !queue.is_empty());
    }
}
