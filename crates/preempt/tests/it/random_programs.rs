//! Random programs with random preemption, compared with the same program without.

use std::sync::Arc;

use proptest::prelude::*;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::Request;
use sluice_preempt::ids::Event;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::Effect;
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, TestRig};

/// One step of the program, or of the scheduler.
#[derive(Debug, Clone)]
enum Step {
    Kernel(usize, u64),
    /// Stores the stream's value at an address of its own, and records the event behind it.
    Publish(usize, usize),
    /// Waits for the event and mixes in the stored value.
    Take(usize, usize),
    Host(usize),
    Preempt(usize, bool),
    Restore(usize),
    Pump,
    Pass(u64),
    Disable(usize),
    Enable(usize),
}

const STREAMS: usize = 5;
const EVENTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    prop_oneof![
        8 => (stream.clone(), 1u64..200_000).prop_map(|(s, ns)| Step::Kernel(s, ns)),
        3 => (stream.clone(), 0..EVENTS).prop_map(|(s, e)| Step::Publish(s, e)),
        3 => (stream.clone(), 0..EVENTS).prop_map(|(s, e)| Step::Take(s, e)),
        1 => stream.clone().prop_map(Step::Host),
        3 => (stream.clone(), any::<bool>()).prop_map(|(s, sync)| Step::Preempt(s, sync)),
        3 => stream.clone().prop_map(Step::Restore),
        3 => Just(Step::Pump),
        3 => (1u64..300_000).prop_map(Step::Pass),
        1 => stream.clone().prop_map(Step::Disable),
        1 => stream.prop_map(Step::Enable),
    ]
}

struct Run {
    rig: TestRig,
    queues: Vec<Arc<Queue>>,
    events: Vec<Event>,
    published: Vec<Option<u64>>,
    tag: u64,
}

impl Run {
    fn new() -> Self {
        let rig = TestRig::new();
        let queues = vec![
            rig.legacy_stream(),
            rig.stream(1, BLOCKING),
            rig.stream(1, BLOCKING),
            rig.stream(1, NON_BLOCKING),
            rig.stream(1, NON_BLOCKING),
        ];
        let events = (0..EVENTS).map(|_| rig.event()).collect();
        Self { rig, queues, events, published: vec![None; EVENTS], tag: 0 }
    }

    fn launch(&mut self, stream: usize, effect: Effect, ns: u64) {
        self.tag += 1;
        self.rig.launch(&self.queues[stream], effect, ns, self.tag).unwrap();
    }

    fn step(&mut self, step: &Step, undisturbed: bool, config: Config) {
        let own = |stream: usize| 1 + stream as u64;
        match *step {
            Step::Kernel(s, ns) => self.launch(s, Effect::Affine { to: own(s), add: ns }, ns),
            Step::Publish(s, e) => {
                let place = 1000 + self.tag;
                self.launch(s, Effect::Copy { to: place, from: own(s) }, 500);
                self.rig.engine.record(&self.queues[s], self.events[e]).unwrap();
                self.published[e] = Some(place);
            }
            Step::Take(s, e) => {
                self.rig.engine.wait(&self.queues[s], self.events[e]).unwrap();
                if let Some(place) = self.published[e] {
                    self.launch(s, Effect::Mix { to: own(s), from: place }, 500);
                }
            }
            Step::Host(s) => {
                self.tag += 1;
                let effect = Effect::Host(own(s) << 32 | self.tag);
                self.rig.launch(&self.queues[s], effect, 0, self.tag).unwrap();
            }
            _ if undisturbed => {}
            Step::Preempt(s, sync) => {
                let _ = self.rig.preempt(&self.queues[s], Request { sync, timeout_ns: 1_000_000, ..ASYNC });
            }
            Step::Restore(s) => {
                let _ = self.rig.engine.restore(&self.queues[s]);
            }
            Step::Pump => {
                self.rig.engine.dispatch();
            }
            Step::Pass(ns) => self.rig.gpu.advance(ns),
            Step::Disable(s) => {
                let _ = self.rig.engine.disable(&self.queues[s]);
            }
            Step::Enable(s) => {
                let _ = self.rig.engine.enable(&self.queues[s], config);
            }
        }
    }

    fn end(&self) -> Outcome {
        for queue in &self.queues {
            let _ = self.rig.engine.restore(queue);
        }
        self.rig.run_to_completion();
        for queue in &self.queues {
            assert_eq!(self.rig.engine.query_stream(queue), Ok(()), "work is left on a stream");
        }
        let order = self.queues.iter().map(|queue| self.rig.executed(queue)).collect();
        let state = self.rig.gpu.state();
        let mut memory: Vec<_> = state.memory.iter().map(|(at, value)| (*at, *value)).collect();
        memory.sort_unstable();
        let mut calls = state.host_calls.clone();
        calls.sort_unstable();
        (order, memory, calls)
    }
}

type Outcome = (Vec<Vec<u64>>, Vec<(u64, u64)>, Vec<u64>);

fn same(steps: &[Step], config: Config) {
    let (mut plain, mut tried) = (Run::new(), Run::new());
    tried.rig.gpu.state().channel_groups = Some(Ok(()));
    tried.rig.gpu.state().max_pauses = Some(100_000);
    for queue in &tried.queues {
        tried.rig.engine.enable(queue, config).unwrap();
    }
    for step in steps {
        plain.step(step, true, config);
        tried.step(step, false, config);
    }
    assert_eq!(tried.end(), plain.end());
}

fn level() -> impl Strategy<Value = PreemptionLevel> {
    prop_oneof![Just(PreemptionLevel::Host), Just(PreemptionLevel::Device), Just(PreemptionLevel::Full)]
}

proptest! {
    #[test]
    fn random_programs_give_the_same_result_with_any_preemption(
        steps in prop::collection::vec(step(), 1..150),
        level in level(),
        queue_size in 1u32..16,
    ) {
        let batch_size = queue_size.div_ceil(2);
        same(&steps, Config { level, queue_size, batch_size, ..Config::default() });
    }
}
