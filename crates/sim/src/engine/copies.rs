//! The copy engines: each makes one copy at a time, in order of readiness, for all contexts.

use super::{CopyEngine, GroupId, StreamId};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    pub(super) group: GroupId,
    pub(super) stream: StreamId,
    pub(super) node: usize,
    pub(super) ns: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Copy>,
    current: Option<(Copy, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    queues: [Queue; CopyEngine::ALL.len()],
}

impl Copies {
    pub(super) fn push(&mut self, engine: CopyEngine, copy: Copy, now: u64) {
        for (queue, _) in self.queues.iter_mut().zip(CopyEngine::ALL).filter(|(_, each)| *each == engine) {
            queue.waiting.push_back(copy);
            queue.begin(now);
        }
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.queues.iter().filter_map(|queue| queue.current.map(|(_, end)| end)).min()
    }

    pub(super) fn finished(&mut self, now: u64) -> Vec<Copy> {
        let mut done = Vec::new();
        for queue in &mut self.queues {
            if let Some((copy, _)) = queue.current.take_if(|(_, end)| *end <= now) {
                done.push(copy);
                queue.begin(now);
            }
        }
        done
    }

    pub(super) fn remove(&mut self, group: GroupId, now: u64) {
        for queue in &mut self.queues {
            queue.waiting.retain(|copy| copy.group != group);
            queue.current.take_if(|(copy, _)| copy.group == group);
            queue.begin(now);
        }
    }
}

impl Queue {
    fn begin(&mut self, now: u64) {
        if self.current.is_none() {
            self.current = self.waiting.pop_front().map(|copy| (copy, now + copy.ns));
        }
    }
}
