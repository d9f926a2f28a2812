//! Invariants of every sequence of commands, whatever the time slices and the order of submission.

use proptest::prelude::*;
use sluice_sim::engine::{
    Advanced, Command, CopyEngine, Engine, Graph, Node, OwnerId, StreamId, StreamKind, Work,
};
use sluice_sim::params;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Step {
    Kernel {
        ns: u64,
        sms: u32,
    },
    Copy {
        bytes: u64,
    },
    Fill {
        bytes: u64,
    },
    /// Waits for the last command of another stream.
    Wait {
        other: usize,
    },
    /// Two kernels and a copy side by side, then a third kernel.
    Graph {
        ns: u64,
        bytes: u64,
    },
    Record,
}

fn steps() -> impl Strategy<Value = Vec<(usize, u64, Step)>> {
    let step = prop_oneof![
        4 => (1_000..3_000_000u64, 1..=132u32).prop_map(|(ns, sms)| Step::Kernel { ns, sms }),
        1 => (1..50_000_000u64).prop_map(|bytes| Step::Copy { bytes }),
        1 => (1..500_000_000u64).prop_map(|bytes| Step::Fill { bytes }),
        1 => (0..STREAMS).prop_map(|other| Step::Wait { other }),
        1 => (1_000..500_000u64, 1..90_000_000u64).prop_map(|(ns, bytes)| Step::Graph { ns, bytes }),
        1 => Just(Step::Record),
    ];
    prop::collection::vec((0..STREAMS, 0..2_000_000u64, step), 1..80)
}

/// Three processes with a legacy, a blocking and a non-blocking stream each.
const STREAMS: usize = 9;

struct World {
    engine: Engine,
    owners: Vec<OwnerId>,
    streams: Vec<StreamId>,
    /// When each command was submitted.
    submitted: HashMap<(StreamId, u64), u64>,
    /// When each command was done.
    done: HashMap<(StreamId, u64), u64>,
    /// Sum of kernel times per process.
    kernel_ns: [u64; 3],
    kernels: [u64; 3],
    waits: Vec<((StreamId, u64), (StreamId, u64))>,
}

impl World {
    fn new(slices: [u64; 3]) -> Self {
        let mut engine = Engine::new(1 << 30, 0);
        let (mut owners, mut streams) = (Vec::new(), Vec::new());
        for (pid, slice) in (1..).zip(slices) {
            let owner = engine.account_mut().open(pid, "");
            engine.account_mut().name(owner, "k");
            let group = engine.add_group(owner, slice);
            owners.push(owner);
            for kind in [StreamKind::Legacy, StreamKind::Blocking, StreamKind::NonBlocking] {
                streams.push(engine.add_stream(group, kind, 0, 0));
            }
        }
        Self {
            engine,
            owners,
            streams,
            submitted: HashMap::new(),
            done: HashMap::new(),
            kernel_ns: [0; 3],
            kernels: [0; 3],
            waits: Vec::new(),
        }
    }

    fn last(&self, index: usize) -> u64 {
        let id = self.streams[index];
        self.submitted.keys().filter(|(stream, _)| *stream == id).map(|(_, seq)| *seq).max().unwrap_or(0)
    }

    fn submit(&mut self, index: usize, at: u64, step: &Step) {
        let id = self.streams[index];
        let kernel = |ns, sms| Work::Kernel { ns, sms, name: 0 };
        let mut count = |kernels: u64, ns: u64| {
            self.kernels[index / 3] += kernels;
            self.kernel_ns[index / 3] += kernels * ns;
        };
        let mut dependency = None;
        let command = match *step {
            Step::Kernel { ns, sms } => {
                count(1, ns);
                Command::Work(kernel(ns, sms))
            }
            Step::Copy { bytes } => Command::Work(Work::Copy { engine: CopyEngine::ToDevice, bytes }),
            Step::Fill { bytes } => Command::Work(Work::Fill { bytes }),
            Step::Record => Command::Record { tag: 0 },
            Step::Wait { other } => {
                // Streams of other processes cannot be waited for.
                let other = index / 3 * 3 + other % 3;
                dependency = Some((self.streams[other], self.last(other)));
                Command::Wait { stream: self.streams[other], seq: self.last(other) }
            }
            Step::Graph { ns, bytes } => {
                count(3, ns);
                let node = |work, successors| Node { work, successors };
                let half = kernel(ns, 66);
                let copy = Work::Copy { engine: CopyEngine::ToHost, bytes };
                let nodes =
                    vec![node(half, vec![2]), node(half, vec![2]), node(half, vec![]), node(copy, vec![])];
                Command::Graph(Arc::new(Graph::new(nodes, false).expect("successors come later")))
            }
        };
        let own_last = self.last(index);
        let seq = self.engine.submit(id, at, command).expect("it was just made");
        assert_eq!(seq, own_last + 1);
        self.waits.extend(dependency.map(|dependency| ((id, seq), dependency)));
        // The legacy default stream and the blocking ones wait for each other.
        let tied = match index % 3 {
            0 => Some(index + 1),
            1 => Some(index - 1),
            _ => None,
        };
        if let Some(other) = tied {
            self.waits.push(((id, seq), (self.streams[other], self.last(other))));
        }
        self.submitted.insert((id, seq), at);
    }

    /// Steps event by event, so that the time of each completion is known.
    fn run_to(&mut self, to: u64) {
        while let Some(at) = self.engine.next_event().filter(|at| *at <= to) {
            assert!(at >= self.engine.now(), "time goes back");
            self.engine.advance(at);
            for Advanced { stream, seq } in self.engine.take_advanced() {
                let before = self.done.insert((stream, seq), at);
                assert_eq!(before, None, "a command was done twice");
            }
        }
        self.engine.advance(to);
        for Advanced { stream, seq } in self.engine.take_advanced() {
            self.done.insert((stream, seq), to);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_command_runs_once_in_order_and_none_is_lost(
        steps in steps(),
        slices in [30_000..3_000_000u64, 30_000..3_000_000u64, 30_000..3_000_000u64],
    ) {
        let mut world = World::new(slices);
        let mut at = 0;
        for (index, gap, step) in &steps {
            at += gap;
            world.run_to(at);
            world.submit(*index, at, step);
        }
        world.run_to(at + 600_000_000_000);

        // Everything submitted was done, each after what it waits for, in the order of its stream.
        for (&(stream, seq), &submitted) in &world.submitted {
            let done = *world.done.get(&(stream, seq)).expect("a command was lost");
            prop_assert!(done >= submitted);
            if seq > 1 {
                prop_assert!(world.done[&(stream, seq - 1)] <= done);
            }
        }
        for (waiting, (stream, seq)) in &world.waits {
            if *seq > 0 {
                prop_assert!(world.done[&(*stream, *seq)] <= world.done[waiting], "a command overtook what it waits for");
            }
        }

        // Kernel times add up exactly, preempted or not.
        let ledger = world.engine.account().ledger();
        for (index, owner) in world.owners.iter().enumerate() {
            let row = &ledger.processes[owner.0];
            prop_assert_eq!(row.kernels_completed, world.kernels[index]);
            prop_assert_eq!(row.kernels_submitted, world.kernels[index]);
            prop_assert_eq!(row.kernel_ns, world.kernel_ns[index]);
        }

        // Only one process has the GPU at a time, and never during a switch.
        let timeline = world.engine.account().timeline(0, u64::MAX);
        for pair in timeline.windows(2) {
            prop_assert!(pair[0].end_ns <= pair[1].start_ns, "intervals overlap: {:?}", pair);
            prop_assert!(pair[0].pid == pair[1].pid || pair[1].start_ns - pair[0].end_ns >= params::LOAD_NS);
        }
        let busy: u64 = timeline.iter().map(|interval| interval.busy_ns).sum();
        prop_assert_eq!(busy, ledger.gpu.busy_ns);
        prop_assert_eq!(busy, ledger.processes.iter().map(|row| row.gpu_ns).sum::<u64>());
        prop_assert!(ledger.gpu.switch_ns <= ledger.gpu.switches * (params::PREEMPT_NS + params::LOAD_NS));
    }

    #[test]
    fn stepping_in_small_steps_or_all_at_once_gives_the_same_timeline(steps in steps(), pace in 1_000..400_000u64) {
        let run = |pace: Option<u64>| {
            let mut world = World::new([2_048_000, 200_000, 1_000_000]);
            let mut at = 0;
            for (index, gap, step) in &steps {
                at += gap;
                while let Some(next) = pace.map(|pace| world.engine.now() + pace).filter(|next| *next < at) {
                    world.engine.advance(next);
                }
                if pace.is_some() {
                    world.engine.advance(at);
                }
                world.submit(*index, at, step);
            }
            world.engine.advance(at + 60_000_000_000);
            (world.engine.account().ledger(), world.engine.account().timeline(0, u64::MAX))
        };
        prop_assert_eq!(run(None), run(Some(pace)));
    }

    #[test]
    fn gpu_is_never_idle_while_a_kernel_could_run(
        kernels in prop::collection::vec((1_000..2_000_000u64, 1..=132u32), 1..40),
    ) {
        let mut world = World::new([2_048_000; 3]);
        for (ns, sms) in &kernels {
            world.submit(2, 0, &Step::Kernel { ns: *ns, sms: *sms });
        }
        world.run_to(60_000_000_000);
        let row = &world.engine.account().ledger().processes[0];
        // One stream: one after the other without a gap, after one submission and one switch.
        prop_assert_eq!(row.gpu_ns, kernels.iter().map(|(ns, _)| ns).sum::<u64>());
        let span = row.last_kernel_ns.zip(row.first_kernel_ns).map_or(0, |(last, first)| last - first);
        prop_assert_eq!(span, row.gpu_ns);
        prop_assert_eq!(row.first_kernel_ns, Some(params::SUBMIT_NS + params::LOAD_NS));
    }

    #[test]
    fn earliest_time_of_a_command_is_never_later_than_its_completion(steps in steps()) {
        let mut world = World::new([2_048_000, 100_000, 500_000]);
        for (index, _, step) in &steps {
            world.submit(*index, 0, step);
        }
        let all: Vec<(StreamId, u64)> = world.submitted.keys().copied().collect();
        let mut promised: HashMap<(StreamId, u64), u64> = HashMap::new();
        while let Some(at) = world.engine.next_event() {
            for (stream, seq) in &all {
                if let Some(earliest) = world.engine.earliest(*stream, *seq) {
                    let promise = promised.entry((*stream, *seq)).or_default();
                    *promise = (*promise).max(earliest);
                }
            }
            world.run_to(at);
        }
        for (command, promise) in promised {
            prop_assert!(promise <= world.done[&command], "promised {promise}, done {}", world.done[&command]);
        }
    }
}
