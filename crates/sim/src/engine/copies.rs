//! The copy engines. Each makes one copy at a time. Contexts with copies for an engine take turns in time slices, and so does the driver, whose
//! own channel clears and maps memory that any process allocates or frees: M §19.

use super::runlist::boundary;
use super::{CopyEngine, GroupId, StreamId};
use crate::params;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// Whose channel a copy is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    /// The driver's own.
    Driver,
    /// One of a context.
    Group(GroupId),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    /// The node of a stream's command that it is; `None` for one of the driver.
    pub(super) node: Option<(StreamId, usize)>,
    pub(super) ns: u64,
    left_ns: u64,
}

impl Copy {
    pub(super) fn new(node: Option<(StreamId, usize)>, ns: u64) -> Self {
        Self { node, ns, left_ns: ns }
    }
}

/// The channel whose first copy is being made.
#[derive(Debug, Clone, Copy)]
struct Current {
    channel: Channel,
    /// Since when the copy has made progress that is not subtracted from its time.
    since: u64,
    slice_start: u64,
    /// The end of its slice, while another channel has copies.
    ends: Option<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Copies in order of readiness. No entry is empty.
    channels: BTreeMap<Channel, VecDeque<Copy>>,
    current: Option<Current>,
    last: Option<Channel>,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    queues: [Queue; CopyEngine::ALL.len()],
}

impl Copies {
    fn queue(&mut self, engine: CopyEngine) -> Option<&mut Queue> {
        self.queues
            .iter_mut()
            .zip(CopyEngine::ALL)
            .find_map(|(queue, each)| (each == engine).then_some(queue))
    }

    /// Adds a copy. It begins in [`Self::settle`].
    pub(super) fn push(&mut self, engine: CopyEngine, channel: Channel, copy: Copy) {
        if let Some(queue) = self.queue(engine) {
            queue.channels.entry(channel).or_default().push_back(copy);
        }
    }

    /// The number of copies of a channel for an engine.
    pub(super) fn count(&mut self, engine: CopyEngine, channel: Channel) -> usize {
        self.queue(engine).and_then(|queue| queue.channels.get(&channel)).map_or(0, VecDeque::len)
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.queues.iter().filter_map(Queue::next_event).min()
    }

    /// Removes the copies that are done.
    pub(super) fn finished(&mut self, now: u64) -> Vec<(Channel, Copy)> {
        self.queues.iter_mut().filter_map(|queue| queue.finish(now)).collect()
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        let channel = Channel::Group(group);
        for queue in &mut self.queues {
            queue.channels.remove(&channel);
            queue.current.take_if(|current| current.channel == channel);
        }
    }

    /// Brings the engines into the state due at `now`, after all copies that begin by then were added: a channel whose stream goes on with
    /// another copy keeps its slice.
    pub(super) fn settle(&mut self, now: u64) {
        self.queues.iter_mut().for_each(|queue| queue.settle(now));
    }
}

impl Queue {
    fn next_event(&self) -> Option<u64> {
        let current = self.current?;
        let left_ns = self.channels.get(&current.channel)?.front()?.left_ns;
        Some((current.since + left_ns).min(current.ends.unwrap_or(u64::MAX)))
    }

    /// Removes the copy that is being made if it is done.
    fn finish(&mut self, now: u64) -> Option<(Channel, Copy)> {
        let current = self.current.as_mut()?;
        let channel = current.channel;
        let copies = self.channels.get_mut(&channel)?;
        let is_done = current.since + copies.front()?.left_ns <= now;
        let done = if is_done { copies.pop_front() } else { None };
        if is_done {
            current.since = now;
        }
        if copies.is_empty() {
            self.channels.remove(&channel);
        }
        done.map(|copy| (channel, copy))
    }

    fn settle(&mut self, now: u64) {
        self.current.take_if(|current| !self.channels.contains_key(&current.channel));
        let others = self.channels.len() > 1;
        if let Some(current) = &mut self.current {
            let slice_start = current.slice_start;
            let ends = others.then(|| {
                current.ends.unwrap_or_else(|| boundary(slice_start, params::COPY_TIMESLICE_NS, now))
            });
            current.ends = ends;
            if ends.is_none_or(|ends| ends > now) {
                return;
            }
            // The rest of the copy is made in a later slice of its channel.
            let gone = now - current.since;
            let channel = current.channel;
            if let Some(copy) = self.channels.get_mut(&channel).and_then(VecDeque::front_mut) {
                copy.left_ns = copy.left_ns.saturating_sub(gone);
            }
            self.current = None;
        }
        let later = self.last.and_then(|last| self.channels.range((Excluded(last), Unbounded)).next());
        let Some((&channel, _)) = later.or_else(|| self.channels.first_key_value()) else { return };
        let ends = others.then_some(now + params::COPY_TIMESLICE_NS);
        self.last = Some(channel);
        self.current = Some(Current { channel, since: now, slice_start: now, ends });
    }
}
