//! A GPU in a test: streams in order, events, gates, captures, errors; its time is the clock and moves when told.

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

/// What a stream does next.
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
    /// What each event stands for: a record, and the capture it was made in.
    pub(crate) events: HashMap<u64, (Option<u64>, Option<u64>)>,
    pub(crate) destroyed_events: BTreeSet<u64>,
    pub(crate) event_contexts: HashMap<u64, u64>,
    /// Contexts that have ended, or may be ending: whoever uses what is theirs crashes.
    pub(crate) ended: BTreeSet<u64>,
    /// When each record was reached.
    pub(crate) records: HashMap<u64, Option<u64>>,
    pub(crate) memory: HashMap<u64, u64>,
    pub(crate) graphs: HashMap<u64, Vec<Job>>,
    /// Tags of jobs by stream, as they were submitted and as they ran.
    pub(crate) submitted: Vec<(u64, u64)>,
    pub(crate) executed: Vec<(u64, u64)>,
    pub(crate) host_calls: Vec<u64>,
    pub(crate) sticky: Option<Code>,
    pub(crate) global_captures: BTreeSet<u64>,
    pub(crate) broken_captures: BTreeSet<u64>,
    pub(crate) relaxed: HashSet<ThreadId>,
    pub(crate) gates: bool,
    /// The driver does not take a gate.
    pub(crate) refuses_gates: bool,
    /// How long after it has read the word the GPU goes on and says so: another process may have it interruptions.
    pub(crate) passing_ns: u64,
    /// What `hold` says next; `None` if there are no slices.
    pub(crate) channel_groups: Option<Result<(), ChannelGroupError>>,
    pub(crate) hung: bool,
    /// How often somebody has waited a little, and how often at most.
    pub(crate) pauses: u64,
    pub(crate) max_pauses: Option<u64>,
    /// Submissions that wait at the door of the driver until this is false: a full ring.
    pub(crate) submissions_block: bool,
    /// Somebody has come to that door.
    pub(crate) submission_blocked: bool,
    /// What another thread does in the middle of calls.
    pub(crate) interruptions: BTreeMap<CallPoint, Interruption>,
}

impl GpuState {
    fn create(&mut self, stream: Stream) {
        let fake = FakeStream { stream: Some(stream), word: 1 << 20, ..FakeStream::default() };
        self.streams.insert(stream.handle, fake);
    }
}

/// See the module. Clones are the same GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeGpu(Arc<Mutex<GpuState>>);

impl FakeGpu {
    /// A GPU with gates and without slices.
    pub(crate) fn new() -> Self {
        let gpu = Self::default();
        gpu.state().gates = true;
        gpu
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, GpuState> {
        self.0.lock().unwrap()
    }

    /// Makes a stream.
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

    /// Makes a stream with the handle of one that is destroyed.
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

    /// A context has ended, and the next one has its handle.
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

    /// Lets `ns` go by.
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

    /// Jobs submitted to a stream so far.
    pub(crate) fn submitted(&self, stream: Stream) -> usize {
        self.state().submitted.iter().filter(|(handle, _)| *handle == stream.handle).count()
    }

    /// The tags of what ran on a stream.
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
