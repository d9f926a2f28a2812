//! A stream as its process sees it, and the effects of its commands on memory, kept until the commands have completed.

use super::gpu::{Gpu, GpuError};
use crate::engine::{Condition, StreamKind, Work};
use crate::params;
use crate::wire::record::Order;
use crate::wire::region::Region;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A command for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCommand {
    /// One piece of work.
    Work(Work),
    /// A graph, from [`Gpu::add_graph`].
    Graph(u64),
    /// Writes the time into an event's word, or only marks the position.
    Record(Option<usize>),
    /// Waits for a position in another stream.
    Wait(Mark),
    /// Stops the stream until [`Stream::host_done`].
    Host,
    /// Waits for a word in memory, whose value [`Gpu::set_word`] reports; without a condition, writes one.
    MemOp(Option<Condition>),
}

/// A position in a stream: everything up to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    slot: usize,
    seq: u64,
    ticket: u64,
}

impl Mark {
    /// Number of the command in its stream.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether it is in the same stream as another, and not before it.
    pub fn follows(&self, other: &Mark) -> bool {
        self.slot == other.slot && self.seq >= other.seq
    }
}

/// A stream. After it is dropped, its slot becomes free when its commands are done.
pub struct Stream {
    gpu: Arc<Gpu>,
    slot: usize,
    /// Locked while a command gets its number and is put into the ring.
    order: Mutex<()>,
    submitted: AtomicU64,
    ticket: AtomicU64,
}

impl Stream {
    /// Opens a stream in a context. A smaller `priority` runs first, as in CUDA.
    pub fn open(gpu: &Arc<Gpu>, group: u64, kind: StreamKind, priority: i32) -> Result<Self, GpuError> {
        let slot = gpu.take_slot()?;
        let last_seq = gpu.region.completed(slot);
        let ticket = gpu.push(slot, Order::Open { group, kind, priority, last_seq }, |_| {});
        Ok(Self {
            gpu: gpu.clone(),
            slot,
            order: Mutex::new(()),
            submitted: AtomicU64::new(last_seq),
            ticket: AtomicU64::new(ticket),
        })
    }

    /// Puts a command and its effect on memory into the stream. Waits if the stream is full.
    /// Detects only while waiting that the daemon has ended.
    pub fn submit(&self, command: StreamCommand, effect: Option<Effect>) -> Result<Mark, GpuError> {
        let order = match command {
            StreamCommand::Work(work) => Order::Work(work),
            StreamCommand::Graph(graph) => Order::Graph { graph },
            StreamCommand::Record(event) => Order::Mark { event },
            StreamCommand::Wait(mark) => Order::Wait { slot: mark.slot, seq: mark.seq },
            StreamCommand::Host => Order::Host,
            StreamCommand::MemOp(condition) => Order::MemOp(condition),
        };
        debug_assert!(order.is_numbered(), "only numbered commands have a position in the stream");
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.submitted.load(Ordering::Relaxed);
        if last.saturating_sub(self.gpu.region.completed(self.slot)) >= params::STREAM_DEPTH {
            self.gpu.wait(self.slot, last - params::STREAM_RESUME)?;
        }
        let seq = last + 1;
        let ticket = self.gpu.push(self.slot, order, |ticket| {
            if let Some(effect) = effect {
                self.gpu.effects.keep(self.slot, ticket, seq, effect);
            }
        });
        self.ticket.store(ticket, Ordering::Relaxed);
        self.submitted.store(seq, Ordering::Release);
        if self.gpu.has_collective(command) {
            // A process on another GPU may wait for it, and this one for nothing.
            self.gpu.wake_if_parked();
        }
        Ok(Mark { slot: self.slot, seq, ticket })
    }

    /// The present end of the stream.
    pub fn mark(&self) -> Mark {
        let seq = self.submitted.load(Ordering::Acquire);
        Mark { slot: self.slot, seq, ticket: self.ticket.load(Ordering::Relaxed) }
    }

    /// Ends the stream's [`StreamCommand::Host`] command `seq`.
    pub fn host_done(&self, seq: u64) {
        self.gpu.push(self.slot, Order::HostDone { seq }, |_| {});
        self.gpu.wake_if_parked();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.gpu.push(self.slot, Order::Close, |_| {});
        self.gpu.retire(self.slot, self.submitted.load(Ordering::Acquire));
    }
}

impl Gpu {
    /// Whether everything up to a mark has completed, with its effects applied. Does not wait.
    pub fn is_done(&self, mark: Mark) -> bool {
        let done = self.query(mark.slot, mark.seq, mark.ticket);
        // Also the effects of earlier commands: a thread that queries an event sees everything that the stream wrote
        // before it.
        self.apply_effects();
        done
    }

    /// Whether everything up to a mark is known to have completed. Neither waits nor wakes the daemon.
    pub fn is_known_done(&self, mark: Mark) -> bool {
        self.region.completed(mark.slot) >= mark.seq
    }

    /// Waits until everything up to a mark has completed, and applies its effects.
    pub fn wait_for(&self, mark: Mark) -> Result<(), GpuError> {
        self.wait(mark.slot, mark.seq)?;
        self.apply_effects();
        Ok(())
    }

    /// Reports the value of a word in this process's memory; streams and kernels may wait for it.
    pub fn set_word(&self, address: u64, value: u64) {
        self.push(0, Order::Word { address, value }, |_| {});
        self.wake_if_parked();
    }

    /// Requests that [`notified`](Self::notified) changes when everything up to a mark has completed.
    pub fn watch(&self, mark: Mark) {
        self.push(mark.slot, Order::Watch { seq: mark.seq }, |_| {});
        self.wake_if_parked();
    }
}

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
            if let Some(next) = pending.get_mut(&slot).and_then(VecDeque::pop_front) {
                (next.effect)();
            }
            due.extend(first(&pending, slot));
        }
        pending.retain(|_, queue| !queue.is_empty());
    }
}
