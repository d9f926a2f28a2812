//! A fake GPU: streams in order, events, gates, captures, errors. Its time is the engine's clock and moves only when
//! a test advances it.

mod driver;
mod interruption;
mod run;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use sluice_preempt::driver::ChannelGroupError;
use sluice_preempt::ids::{Code, Context, Stream};

pub(crate) use interruption::{CallPoint, Interruption};
pub(crate) use work::{Effect, Job, REFUSED, job};

/// The next operation of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Job(Job),
    Record(u64),
    Wait(u64),
    Arrive(u32),
    Gate(u32),
    Pass(u32),
}

#[derive(Debug, Default)]
pub(crate) struct FakeStream {
    pub(crate) stream: Option<Stream>,
    pub(crate) ops: VecDeque<(u64, Op)>,
    pub(crate) ends: Option<u64>,
    pub(crate) word: u32,
    pub(crate) arrived: u32,
    pub(crate) passed: u32,
    pub(crate) capture: Option<u64>,
    pub(crate) destroyed: bool,
    pub(crate) held: bool,
}

#[derive(Debug, Default)]
pub(crate) struct GpuState {
    pub(crate) now: u64,
    pub(crate) made: u64,
    pub(crate) streams: BTreeMap<u64, FakeStream>,
    /// For each event: its record, and the capture in which it was made.
    pub(crate) events: HashMap<u64, (Option<u64>, Option<u64>)>,
    pub(crate) destroyed_events: BTreeSet<u64>,
    pub(crate) event_contexts: HashMap<u64, u64>,
    /// Contexts that have ended, or may be ending. A call that uses their objects panics.
    pub(crate) ended: BTreeSet<u64>,
    /// When the GPU reached each record.
    pub(crate) records: HashMap<u64, Option<u64>>,
    pub(crate) memory: HashMap<u64, u64>,
    pub(crate) graphs: HashMap<u64, Vec<Job>>,
    /// Tags of jobs by stream, in the order of submission and of execution.
    pub(crate) submitted: Vec<(u64, u64)>,
    pub(crate) executed: Vec<(u64, u64)>,
    pub(crate) host_calls: Vec<u64>,
    pub(crate) sticky: Option<Code>,
    pub(crate) global_captures: BTreeSet<u64>,
    pub(crate) broken_captures: BTreeSet<u64>,
    pub(crate) relaxed: HashSet<ThreadId>,
    pub(crate) gates: bool,
    /// The driver refuses gates.
    pub(crate) refuses_gates: bool,
    /// Time between the GPU's read of the word and its write that the gate was passed: another process may have the
    /// GPU in between.
    pub(crate) passing_ns: u64,
    /// The result of the next attempt to disable a channel group; `None` without control of channel groups.
    pub(crate) channel_groups: Option<Result<(), ChannelGroupError>>,
    pub(crate) hung: bool,
    /// Number of `pause` calls, and the number at which the test fails.
    pub(crate) pauses: u64,
    pub(crate) max_pauses: Option<u64>,
    /// Submissions block in the driver until this is false, as with a full ring.
    pub(crate) submissions_block: bool,
    /// A submission has blocked there.
    pub(crate) submission_blocked: bool,
    /// What another thread does in the middle of driver calls.
    pub(crate) interruptions: BTreeMap<CallPoint, Interruption>,
}

impl GpuState {
    fn create(&mut self, stream: Stream) {
        let fake = FakeStream { stream: Some(stream), word: 1 << 20, ..FakeStream::default() };
        self.streams.insert(stream.handle, fake);
    }
}

/// See the module. Clones share one GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeGpu(Arc<Mutex<GpuState>>);

impl FakeGpu {
    /// A GPU with gates and without control of channel groups.
    pub(crate) fn new() -> Self {
        let gpu = Self::default();
        gpu.state().gates = true;
        gpu
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, GpuState> {
        self.0.lock().unwrap()
    }

    /// Creates a stream.
    pub(crate) fn stream(&self, context: u64, blocking: bool) -> Stream {
        let mut state = self.state();
        state.made += 1;
        let stream = Stream { context: Context(context), handle: 0x100 + state.made, blocking };
        state.create(stream);
        stream
    }

    /// The legacy default stream of context 1.
    pub(crate) fn legacy_stream(&self) -> Stream {
        let stream = Stream::legacy(Context(1));
        self.state().create(stream);
        stream
    }

    /// Creates a stream with the handle of a destroyed one.
    pub(crate) fn create_again(&self, stream: Stream) {
        let mut state = self.state();
        assert!(state.streams[&stream.handle].destroyed);
        state.create(stream);
    }

    /// The driver's part of a context's end begins.
    pub(crate) fn end_context(&self, context: u64) {
        let mut state = self.state();
        state.ended.insert(context);
        let now = state.now;
        state.run_until(now + (1 << 40));
    }

    /// A context has ended, and the next one gets its handle.
    pub(crate) fn make_context(&self, context: u64) {
        let mut state = self.state();
        assert!(state.ended.remove(&context));
        let gone: Vec<u64> =
            state.event_contexts.iter().filter(|(_, of)| **of == context).map(|(event, _)| *event).collect();
        for event in gone {
            state.events.remove(&event);
            state.destroyed_events.insert(event);
        }
        let streams = state.streams.values_mut().filter(|fake| fake.stream.unwrap().context.0 == context);
        streams.for_each(|fake| fake.destroyed = true);
    }

    /// Advances the time by `ns`.
    pub(crate) fn advance(&self, ns: u64) {
        let mut state = self.state();
        let until = state.now + ns;
        state.run_until(until);
    }

    /// Runs until nothing more happens.
    pub(crate) fn finish(&self) {
        self.advance(1 << 50);
    }

    /// A word of memory.
    pub(crate) fn read(&self, address: u64) -> u64 {
        self.state().memory.get(&address).copied().unwrap_or(0)
    }

    /// Number of jobs submitted to a stream so far.
    pub(crate) fn submitted(&self, stream: Stream) -> usize {
        self.state().submitted.iter().filter(|(handle, _)| *handle == stream.handle).count()
    }

    /// The tags of the jobs that ran on a stream.
    pub(crate) fn executed(&self, stream: Stream) -> Vec<u64> {
        self.state()
            .executed
            .iter()
            .filter(|(handle, _)| *handle == stream.handle)
            .map(|(_, tag)| *tag)
            .collect()
    }

    pub(crate) fn now(&self) -> u64 {
        self.state().now
    }
}
