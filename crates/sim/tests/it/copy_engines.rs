//! A latency-critical service beside programs without kernels, compared with `docs/reference/gpu.md` §19: its input is copied by a copy engine
//! or by a kernel, and the neighbour copies or allocates.
#![allow(clippy::unwrap_used, reason = "a test ends where its own means fail")]

use crate::busy_engine::{RandomNumbers, assert_near};
use sluice_sim::engine::{Command, CopyEngine, Engine, GroupId, StreamId, StreamKind, Work};
use sluice_sim::{module::Module, params};

const REQUESTS: u64 = 1_000;
const PERIOD_NS: u64 = 10_000_000;
/// The input of ResNet-50, and its graph on the GPU.
const INPUT_BYTES: u64 = 300_000;
const MODEL_NS: u64 = 900_000;
/// What the process in the row "allocated and freed" allocates.
const ALLOCATED_BYTES: u64 = 512 << 20;

/// What the neighbour does all the time.
#[derive(Debug, Clone, Copy)]
enum Neighbour {
    None,
    /// Copies of so many bytes in these directions, two in flight in each.
    Copies(u64, &'static [CopyEngine]),
    /// Allocates and frees.
    Allocations,
}

struct Service {
    engine: Engine,
    stream: StreamId,
    neighbour: GroupId,
    copies: Vec<(StreamId, CopyEngine)>,
}

impl Service {
    fn new() -> Self {
        let mut engine = Engine::new(params::MEMORY_BYTES, 0);
        let [service, neighbour] = [1, 2].map(|pid| {
            let owner = engine.account_mut().open(pid, "");
            engine.account_mut().name(owner, "k");
            engine.add_group(owner, params::TIMESLICE_NS)
        });
        let stream = engine.add_stream(service, StreamKind::NonBlocking, 0, 0);
        Self { engine, stream, neighbour, copies: Vec::new() }
    }

    /// Advances to a time. The neighbour always has two copies in flight, or allocates each 0.5 ms. Returns when the service's stream was
    /// empty for the first time.
    fn run_to(&mut self, to: u64, neighbour: Neighbour, wanted: u64) -> Option<u64> {
        let mut done = None;
        while self.engine.now() < to {
            let next = self.engine.next_event().unwrap_or(to).min(to).min(self.engine.now() + 500_000);
            self.engine.advance(next.max(self.engine.now() + 1));
            if matches!(neighbour, Neighbour::Allocations) {
                self.engine.memory_changes(ALLOCATED_BYTES);
            }
            let now = self.engine.now();
            for advanced in self.engine.take_advanced() {
                if advanced.stream == self.stream && advanced.seq == wanted {
                    done = Some(now);
                }
                if let (Neighbour::Copies(bytes, _), Some((stream, engine))) =
                    (neighbour, self.copies.iter().find(|(stream, _)| *stream == advanced.stream).copied())
                {
                    self.engine.submit(stream, now, Command::Work(Work::Copy { engine, bytes }));
                }
            }
        }
        done
    }

    /// Median and 99th percentile of the requests' latency, in µs. `input` is the work that copies the input.
    fn serve(neighbour: Neighbour, input: Work) -> (f64, f64) {
        let mut this = Self::new();
        if let Neighbour::Copies(bytes, directions) = neighbour {
            for engine in directions {
                let stream = this.engine.add_stream(this.neighbour, StreamKind::NonBlocking, 0, 0);
                for _ in 0..2 {
                    let copy = Work::Copy { engine: *engine, bytes };
                    this.engine.submit(stream, 0, Command::Work(copy)).unwrap();
                }
                this.copies.push((stream, *engine));
            }
        }
        let mut numbers = RandomNumbers(1);
        let mut latencies: Vec<f64> = (1..=REQUESTS)
            .map(|request| {
                let at = request * PERIOD_NS + numbers.below(2_000_000);
                this.run_to(at, neighbour, 0);
                this.engine.submit(this.stream, at, Command::Work(input)).unwrap();
                let model = Work::Kernel { ns: MODEL_NS, sms: params::SMS, name: 0 };
                let seq = this.engine.submit(this.stream, at, Command::Work(model)).unwrap();
                let done = this.run_to(at + PERIOD_NS / 2, neighbour, seq);
                (done.expect("the request was not served within half of its period") - at) as f64 / 1e3
            })
            .collect();
        latencies.sort_by(f64::total_cmp);
        (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100])
    }
}

const BY_ENGINE: Work = Work::Copy { engine: CopyEngine::ToDevice, bytes: INPUT_BYTES };

/// The hook's copy kernel with the service's input.
fn by_kernel() -> Work {
    let kernel = &Module::of_ptx(".entry sluice_copy(").unwrap().kernels[0];
    let packed: Vec<u8> = [1, 2, INPUT_BYTES].iter().flat_map(|value: &u64| value.to_le_bytes()).collect();
    let launch = kernel.launch(16, 512, &packed).unwrap();
    Work::Kernel { ns: launch.ns, sms: launch.sms, name: 0 }
}

const BOTH: &[CopyEngine] = &[CopyEngine::ToDevice, CopyEngine::ToHost];

#[test]
fn input_by_copy_engine_waits_up_to_a_slice_beside_copies_and_allocations_as_measured() {
    let (alone, alone_p99) = Service::serve(Neighbour::None, BY_ENGINE);
    // Milliseconds added to p50 and p99 in §19.
    let rows = [
        (Neighbour::Copies(1 << 30, BOTH), 0.53, 1.01),
        (Neighbour::Copies(16 << 20, BOTH), 0.56, 0.98),
        (Neighbour::Copies(4 << 20, BOTH), 0.53, 0.95),
        (Neighbour::Copies(1 << 30, &[CopyEngine::ToDevice]), 0.47, 0.89),
        (Neighbour::Allocations, 0.51, 0.92),
    ];
    for (neighbour, p50, p99) in rows {
        let got = Service::serve(neighbour, BY_ENGINE);
        assert_near(&format!("{neighbour:?}: p50"), (got.0 - alone) / 1e3, p50, 0.1);
        assert_near(&format!("{neighbour:?}: p99"), (got.1 - alone_p99) / 1e3, p99, 0.15);
    }
}

#[test]
fn input_by_copy_engine_does_not_wait_for_short_copies_and_those_of_the_other_direction() {
    let (alone, _) = Service::serve(Neighbour::None, BY_ENGINE);
    for neighbour in [Neighbour::Copies(1 << 30, &[CopyEngine::ToHost]), Neighbour::Copies(0, BOTH)] {
        let (p50, _) = Service::serve(neighbour, BY_ENGINE);
        assert!(p50 < alone * 1.07, "{neighbour:?}: {p50} µs, alone {alone} µs");
    }
}

#[test]
fn input_by_kernel_takes_as_much_longer_as_measured_and_waits_for_no_copy() {
    let (by_engine, _) = Service::serve(Neighbour::None, BY_ENGINE);
    let (alone, alone_p99) = Service::serve(Neighbour::None, by_kernel());
    assert_near("without a neighbour", alone - by_engine, 42.0, 4.2);
    for neighbour in [Neighbour::Copies(1 << 30, BOTH), Neighbour::Allocations] {
        let (p50, p99) = Service::serve(neighbour, by_kernel());
        assert_near(&format!("{neighbour:?}: p50"), p50, alone, 1.0);
        assert_near(&format!("{neighbour:?}: p99"), p99, alone_p99, 1.0);
    }
}
