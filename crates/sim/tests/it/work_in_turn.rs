//! Two best-effort processes of one client take turns beside a latency-critical service: what each setting of their channel groups gives
//! them, and what it costs the service. `docs/design/channel-groups.md` ("Work in turn") has the figures.

use crate::busy_engine::{BusyEngine, RandomNumbers, Tenant, submit};
use sluice_sim::engine::{Access, Command, Control, HoldParams, StreamId, StreamKind, Work};
use sluice_sim::params;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const WORD: u64 = 0x1000;
/// Simulated time of a run.
const SECONDS: u64 = 20;
const PERIOD_NS: u64 = 20 * MS;
/// A request comes up to this much earlier or later than its time.
const JITTER_NS: u64 = 100 * US;
/// From the end of a worker's kernel until the other worker launches its own: the first one returns from its wait and writes to a pipe.
const PASS_ON_NS: u64 = params::HOST_RETURN_NS + 30 * US;
/// From the end of a worker's kernel until the manager has seen it.
const NOTICE_NS: u64 = 50 * US;
/// Controls that may be made at once, and the time in which one is earned: as `ChannelGroupPolicy`.
const CONTROL_BURST: u64 = 32;
const CONTROL_NS: u64 = 6_250_000;

/// What the workers do.
#[derive(Clone, Copy, PartialEq)]
enum Workers {
    /// Each launches a kernel when the other's has ended.
    InTurn,
    /// Both always have kernels.
    Always,
    /// Only the first one always has kernels.
    First,
}

/// How long before the expected arrival the service's hold kernels are launched.
#[derive(Clone, Copy)]
enum Lead {
    /// There are none.
    None,
    Fixed(u64),
    /// As the hook does: the learned switch cost, and four mean deviations.
    Learned,
}

/// Which groups of the workers are enabled.
#[derive(Clone, Copy)]
enum Groups {
    Both,
    /// One. A hand-off takes place as soon as its worker has ended its kernel: within the rate of controls, or at any rate.
    One {
        within_rate: bool,
    },
}

#[derive(Clone, Copy)]
struct Setup {
    workers: Workers,
    kernel_ns: u64,
    /// Time slices of the workers' groups and of the service's.
    slices_us: [u64; 3],
    groups: Groups,
    lead: Lead,
}

/// One group with the shortest slice, a second one with the shortest that may be enabled beside it.
const SECOND_GROUP: Setup = Setup {
    workers: Workers::InTurn,
    kernel_ns: 500 * US,
    slices_us: [1, 1_000, 1_000_000],
    groups: Groups::Both,
    lead: Lead::None,
};

/// The rule while a latency-critical process works, if only one group has work.
const ONE_GROUP: Setup = Setup { workers: Workers::First, ..SECOND_GROUP };

const TIME_SLICING: Setup = Setup { slices_us: [2_048; 3], ..SECOND_GROUP };

#[derive(Clone, Copy)]
enum HostStep {
    Launch(usize),
    Hold,
    Request,
    Release,
}

/// Rates per second, and latencies of requests with a kernel of 1 ms, in µs, sorted.
struct Outcome {
    round_trips: f64,
    kernels: f64,
    controls: f64,
    latencies: Vec<f64>,
}

impl Outcome {
    fn at(&self, percent: usize) -> f64 {
        self.latencies[self.latencies.len() * percent / 100]
    }
}

/// A GPU with two workers and a service, and the steps of their hosts that are to come.
struct Bench {
    setup: Setup,
    gpu: BusyEngine,
    workers: [Tenant; 2],
    service: Tenant,
    side: StreamId,
    steps: Vec<(u64, HostStep)>,
    numbers: RandomNumbers,
    round_trips: u64,
    latencies: Vec<f64>,
    /// Without jitter, and with it.
    due_ns: u64,
    arrival_ns: u64,
    ticket: u32,
    launched: Option<u64>,
    switch_cost_ns: f64,
    /// When the control in flight ends, and when all controls made so far are earned.
    controlled_until: u64,
    earned_at: u64,
    controls: u64,
}

impl Bench {
    fn new(setup: Setup) -> Self {
        let mut gpu = BusyEngine::new();
        let workers = [0, 1].map(|worker| gpu.tenant(setup.slices_us[worker], setup.kernel_ns / US));
        let service = gpu.tenant(setup.slices_us[2], 1_000);
        let side = gpu.engine.add_stream(service.group, StreamKind::NonBlocking, 0, 0);
        if matches!(setup.groups, Groups::One { .. }) {
            gpu.engine.control(workers[1].group, Control::Access(Access::Stopped));
        }
        let first: &[usize] = match setup.workers {
            Workers::InTurn => &[0],
            Workers::Always => &[0, 0, 1, 1],
            Workers::First => &[0, 0],
        };
        let mut bench = Self {
            setup,
            gpu,
            workers,
            service,
            side,
            steps: first.iter().map(|worker| (0, HostStep::Launch(*worker))).collect(),
            numbers: RandomNumbers(7),
            round_trips: 0,
            latencies: Vec::new(),
            due_ns: 0,
            arrival_ns: 0,
            ticket: 0,
            launched: None,
            switch_cost_ns: 350e3,
            controlled_until: 0,
            earned_at: 0,
            controls: 0,
        };
        bench.plan_request();
        bench
    }

    fn run(setup: Setup) -> Outcome {
        let mut bench = Self::new(setup);
        let end = SECONDS * 1_000 * MS;
        while bench.gpu.engine.now() < end {
            let next_step = bench.steps.iter().map(|(at, _)| *at).min().unwrap_or(end).min(end);
            match bench.gpu.engine.next_event().filter(|event| *event <= next_step) {
                Some(event) => bench.gpu_event(event),
                None => bench.host_step(next_step),
            }
        }
        bench.latencies.sort_by(f64::total_cmp);
        let per_second = |count: u64| count as f64 / SECONDS as f64;
        Outcome {
            round_trips: per_second(bench.round_trips),
            kernels: per_second(bench.workers.iter().map(|worker| bench.gpu.completed(worker.owner)).sum()),
            controls: per_second(bench.controls),
            latencies: bench.latencies,
        }
    }

    fn gpu_event(&mut self, at: u64) {
        self.gpu.engine.advance(at);
        if self.gpu.engine.is_on(self.service.group)
            && let Some(launched) = self.launched.take()
        {
            // The weights and bounds of `hold_kernel::switch_cost`.
            let error = (at - launched) as f64 - self.switch_cost_ns;
            let weight = if error < 0.0 { 1.0 / 16.0 } else { 0.5 };
            self.switch_cost_ns = (self.switch_cost_ns + weight * error).clamp(50e3, 1e6);
        }
        for advanced in self.gpu.engine.take_advanced() {
            if advanced.stream == self.service.stream {
                self.latencies.push((at + params::HOST_RETURN_NS - self.arrival_ns) as f64 / 1e3);
                self.plan_request();
            } else if let Some(worker) = self.workers.iter().position(|it| it.stream == advanced.stream) {
                self.worker_ended(worker, at);
            }
        }
    }

    fn worker_ended(&mut self, worker: usize, at: u64) {
        if self.setup.workers != Workers::InTurn {
            return self.steps.push((at, HostStep::Launch(worker)));
        }
        self.round_trips += u64::from(worker == 1);
        self.steps.push((at + PASS_ON_NS, HostStep::Launch(1 - worker)));
        if let Groups::One { within_rate } = self.setup.groups {
            self.hand_off(worker, at + NOTICE_NS, within_rate);
        }
    }

    /// Disables the group of a worker, then enables the other's: both have the shortest slice.
    fn hand_off(&mut self, from: usize, at: u64, within_rate: bool) {
        let burst_ns = (CONTROL_BURST - 2) * CONTROL_NS;
        let earned = if within_rate { self.earned_at.saturating_sub(burst_ns) } else { 0 };
        let begin = at.max(self.controlled_until).max(earned);
        self.earned_at = self.earned_at.max(begin) + 2 * CONTROL_NS;
        let disabled = begin + params::DISABLE_SCHEDULING_NS;
        self.controlled_until = disabled + params::ENABLE_NS;
        self.controls += 2;
        let engine = &mut self.gpu.engine;
        engine.control_at(disabled, self.workers[from].group, Control::Access(Access::Stopped));
        let enabled = disabled + params::ENABLED_AFTER_NS;
        engine.control_at(enabled, self.workers[1 - from].group, Control::Access(Access::Enabled));
    }

    fn plan_request(&mut self) {
        self.due_ns += PERIOD_NS;
        self.arrival_ns = self.due_ns - JITTER_NS + self.numbers.below(2 * JITTER_NS);
        self.steps.push((self.arrival_ns, HostStep::Request));
        self.launched = None;
        let lead_ns = match self.setup.lead {
            Lead::None => return,
            Lead::Fixed(ns) => ns,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within its bounds")]
            // The mean deviation is half of the jitter.
            Lead::Learned => self.switch_cost_ns as u64 + 2 * JITTER_NS,
        };
        self.steps.push((self.due_ns - lead_ns, HostStep::Hold));
    }

    fn host_step(&mut self, at: u64) {
        let engine = &mut self.gpu.engine;
        engine.advance(at);
        let Some(next) = self.steps.iter().position(|(due, _)| *due <= at) else { return };
        match self.steps.swap_remove(next).1 {
            HostStep::Launch(worker) => submit(engine, &self.workers[worker], at),
            HostStep::Hold => {
                self.launched = Some(at);
                let (ticket, timeout_ns) = (self.ticket + 1, 4 * MS);
                let params =
                    HoldParams { ticket, timeout_ns, longest_ns: timeout_ns, ..HoldParams::default() };
                for _ in 0..2 {
                    let work = Work::Hold { address: WORD, params, name: 0, times: [u64::MAX; 3] };
                    assert!(engine.submit(self.side, at, Command::Work(work)).is_some());
                }
            }
            HostStep::Request => {
                submit(engine, &self.service, at);
                self.steps.push((at + params::SUBMIT_NS, HostStep::Release));
            }
            HostStep::Release => {
                self.ticket += 1;
                engine.set_word(self.service.owner, WORD, self.ticket.into());
            }
        }
    }
}

/// A switch there and the margin of the prediction.
const SWITCH_LEAD: Lead = Lead::Fixed(400 * US);
/// And the slice of the second group.
const LONG_LEAD: Lead = Lead::Fixed(1_400 * US);

#[test]
fn hand_offs_at_once_reach_a_twentieth_of_the_turns_within_the_control_rate() {
    let bare = Bench::run(TIME_SLICING).round_trips;
    let hand_offs = |within_rate| {
        Bench::run(Setup {
            slices_us: [1, 1, 1_000_000],
            groups: Groups::One { within_rate },
            ..SECOND_GROUP
        })
    };
    let within = hand_offs(true);
    assert!((38.0..42.0).contains(&within.round_trips), "{}", within.round_trips);
    assert!(within.round_trips < 0.06 * bare, "{} of {bare}", within.round_trips);
    let unbounded = hand_offs(false);
    assert!(unbounded.round_trips < 0.65 * bare, "{} of {bare}", unbounded.round_trips);
    assert!(unbounded.controls > 1_800.0, "{} controls a second", unbounded.controls);
}

#[test]
fn second_group_with_a_slice_of_1_ms_delays_requests_that_no_hold_precedes() {
    let (one, two) = (Bench::run(ONE_GROUP), Bench::run(SECOND_GROUP));
    let bare = Bench::run(TIME_SLICING);
    assert!(two.round_trips > 0.98 * bare.round_trips, "{} of {}", two.round_trips, bare.round_trips);
    // 1205 and 1726 µs; the workers' kernels take half of a slice.
    assert!(two.at(99) > one.at(99) + 450.0, "p99 {} and {}", one.at(99), two.at(99));
    let long = Bench::run(Setup { workers: Workers::Always, ..SECOND_GROUP });
    assert!(long.at(99) > one.at(99) + 1_250.0, "p99 {} and {}", one.at(99), long.at(99));
}

#[test]
fn hold_that_leads_by_the_second_groups_slice_hides_it_whatever_the_workers_do() {
    let bare = Bench::run(TIME_SLICING);
    let one = Bench::run(Setup { lead: SWITCH_LEAD, ..ONE_GROUP });
    let two = Bench::run(Setup { lead: LONG_LEAD, ..SECOND_GROUP });
    assert!(two.round_trips > 0.93 * bare.round_trips, "{} of {}", two.round_trips, bare.round_trips);
    for (workers, kernel_ns) in [(Workers::InTurn, 500), (Workers::InTurn, 2_000), (Workers::Always, 2_000)] {
        let setup = Setup { workers, kernel_ns: kernel_ns * US, lead: LONG_LEAD, ..SECOND_GROUP };
        let p99 = Bench::run(setup).at(99);
        assert!((p99 - one.at(99)).abs() < 1.0, "p99 {p99} and {}", one.at(99));
    }
}

/// Therefore the manager would have to state the slice.
#[test]
fn lead_by_the_learned_switch_cost_does_not_hide_the_second_groups_slice() {
    let lead = Lead::Learned;
    let one = Bench::run(Setup { lead, ..ONE_GROUP });
    let in_turn = Bench::run(Setup { lead, ..SECOND_GROUP });
    assert!(in_turn.at(99) > one.at(99) + 80.0, "p99 {} and {}", one.at(99), in_turn.at(99));
    let always = Bench::run(Setup { lead, workers: Workers::Always, ..SECOND_GROUP });
    assert!(always.at(99) > one.at(99) + 700.0, "p99 {} and {}", one.at(99), always.at(99));
}

/// Therefore the manager would have to know whether the workers take turns.
#[test]
fn two_groups_that_always_have_work_lose_more_than_a_quarter_beside_each_other() {
    let lead = SWITCH_LEAD;
    let one = Bench::run(Setup { lead, ..ONE_GROUP }).kernels;
    let both = Bench::run(Setup { lead: LONG_LEAD, workers: Workers::Always, ..SECOND_GROUP }).kernels;
    assert!(both < 0.75 * one, "{both} kernels a second, {one} with one group enabled");
}
