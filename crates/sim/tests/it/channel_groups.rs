//! Channel-group scheduling from outside through the resource manager, compared with `docs/reference/gpu.md` §8 (duty
//! cycle), §13 (quanta, with and without an LC tenant) and §7 (time slices set while tenants run).

use crate::busy_engine::{BusyEngine, RandomNumbers, assert_near, submit};
use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{
    AllocBlock, ChannelParams, Command, ControlBlock, DisableChannels, GroupParams, Request, class, engine,
    timeslice,
};
use sluice_nvrm::transport::wire;
use sluice_sim::engine::{GroupId, StreamId};
use sluice_sim::params;
use sluice_sim::rm::{FileId, Rm, Support};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const GROUP: u32 = 0x5c00_0015;

/// The handles of a tenant's objects.
#[derive(Clone)]
struct Handles {
    file: FileId,
    client: u32,
    subdevice: u32,
    channels: Vec<u32>,
}

/// An outside controller: it makes one control after the other while the timeline proceeds.
struct Controller {
    rm: Rm,
    bench: BusyEngine,
    seen: Vec<(StreamId, u64)>,
}

impl Controller {
    fn new(bench: BusyEngine) -> Self {
        Self { rm: Rm::new([0; 16], Support::Full, params::TIMESLICE_NS), bench, seen: Vec::new() }
    }

    fn now(&self) -> u64 {
        self.bench.engine.now()
    }

    fn run_to(&mut self, to: u64) {
        let seen = &mut self.seen;
        self.bench.run_to(to, |stream, at| seen.push((stream, at)));
    }

    fn run_for(&mut self, ns: u64) {
        self.run_to(self.now() + ns);
    }

    fn ioctl(&mut self, file: FileId, nr: u8, block: &[u8], params: &[u8]) -> Vec<u8> {
        let packet = wire::encode_request(nr.into(), block, params).expect("it is short");
        let now = self.now();
        let reply = self.rm.request(now, file, &packet, &mut self.bench.engine);
        self.run_to(reply.at_ns);
        assert_eq!(reply.bytes[..4], [0; 4]);
        reply.bytes[4..].to_vec()
    }

    fn alloc(
        &mut self,
        file: FileId,
        client: u32,
        parent: u32,
        object: u32,
        class: u32,
        params: &[u8],
    ) -> u32 {
        let block = AllocBlock { client, parent, object, class, ..AllocBlock::default() };
        let reply = self.ioctl(file, Request::ALLOC.nr, &block.encode(), params);
        let block = AllocBlock::decode(&reply[..32]).expect("its size is right");
        assert_eq!(block.status, 0);
        block.object
    }

    /// Learns the handles of a context.
    fn take(&mut self, context: GroupId) -> Handles {
        let file = self.rm.open();
        let client = self.alloc(file, 0, 0, 0, class::ROOT_CLIENT, &[]);
        let device = self.alloc(file, client, client, 0, class::DEVICE, &[]);
        let subdevice = self.alloc(file, client, device, 0, class::SUBDEVICE, &[]);
        let group = GroupParams { engine: engine::GR0 }.encode();
        self.alloc(file, client, device, GROUP, class::CHANNEL_GROUP, &group);
        let channel = ChannelParams { entries: 1_024, engine: engine::GR0 }.encode();
        let mut channels = Vec::new();
        for _ in 0..8 {
            channels.push(self.alloc(file, client, GROUP, 0, class::HOPPER_CHANNEL, &channel));
        }
        assert!(self.rm.bind(file, client, GROUP, context, &mut self.bench.engine));
        Handles { file, client, subdevice, channels }
    }

    fn control(&mut self, of: &Handles, object: u32, command: Command, params: &[u8]) {
        let block = ControlBlock {
            client: of.client,
            object,
            command: command.number,
            params_len: command.params_len,
            ..ControlBlock::default()
        };
        let reply = self.ioctl(of.file, Request::CONTROL.nr, &block.encode(), params);
        assert_eq!(ControlBlock::decode(&reply[..32]).expect("its size is right").status, NvStatus::OK.0);
    }

    fn set_slice(&mut self, of: &Handles, us: u64) {
        self.control(of, GROUP, Command::SET_TIMESLICE, &timeslice::encode(us));
    }

    fn enable(&mut self, of: &Handles, enable: bool) {
        let channels = of.channels.iter().map(|channel| (of.client, *channel)).collect();
        let params = DisableChannels { disable: !enable, only_scheduling: false, channels }.encode();
        self.control(of, of.subdevice, Command::DISABLE_CHANNELS, &params);
    }

    /// Passes the quantum of one of two tenants to the other. Returns the new holder and the end of its quantum.
    fn hand_off(&mut self, handles: &[Handles], holder: usize, ms: [u64; 2]) -> (usize, u64) {
        let next = 1 - holder;
        self.enable(&handles[holder], false);
        self.enable(&handles[next], true);
        (next, self.now() + ms[next] * MS)
    }

    /// Kernels that each busy tenant has completed.
    fn completed(&self) -> Vec<f64> {
        self.bench.busy.iter().map(|tenant| self.bench.completed(tenant.owner) as f64).collect()
    }
}

/// A controller of so many tenants with kernels of 200 µs.
fn controller(tenants: usize) -> (Controller, Vec<Handles>) {
    let mut bench = BusyEngine::new();
    (0..tenants).for_each(|_| bench.saturate(2_048, 200));
    let contexts: Vec<GroupId> = bench.busy.iter().map(|tenant| tenant.group).collect();
    let mut controller = Controller::new(bench);
    let handles = contexts.into_iter().map(|context| controller.take(context)).collect();
    (controller, handles)
}

#[test]
fn lone_tenant_can_be_limited_to_half_of_the_time() {
    for on_ms in [5, 20] {
        let (mut controller, handles) = controller(1);
        let begin = controller.now();
        while controller.now() < begin + 10 * SECOND {
            controller.run_for(on_ms * MS);
            controller.enable(&handles[0], false);
            controller.run_for(on_ms * MS);
            controller.enable(&handles[0], true);
        }
        let part = controller.completed()[0] * 200_000.0 / (controller.now() - begin) as f64 * 100.0;
        assert_near(&format!("{on_ms} ms on, {on_ms} ms off"), part, 50.5, 1.0);
    }
}

/// Two tenants with quanta of these lengths. Returns the share of the first, and the sum relative to running alone,
/// in %.
fn shares_by_quanta(ms: [u64; 2]) -> (f64, f64) {
    let (mut controller, handles) = controller(2);
    controller.enable(&handles[1], false);
    let (begin, before) = (controller.now(), controller.completed());
    while controller.now() < begin + 20 * SECOND {
        for (holder, quantum) in ms.into_iter().enumerate() {
            controller.run_for(quantum * MS);
            controller.enable(&handles[holder], false);
            controller.enable(&handles[1 - holder], true);
        }
    }
    let done: Vec<f64> =
        controller.completed().iter().zip(before).map(|(now, before)| now - before).collect();
    let sum = done[0] + done[1];
    (done[0] / sum * 100.0, sum * 200_000.0 / (controller.now() - begin) as f64 * 100.0)
}

#[test]
fn quanta_share_as_measured() {
    for (ms, share, sum) in [([9, 21], 30.4, 97.9), ([30, 70], 30.2, 100.1)] {
        let (got_share, got_sum) = shares_by_quanta(ms);
        assert_near(&format!("quanta of {ms:?} ms: share"), got_share, share, 0.5);
        assert_near(&format!("quanta of {ms:?} ms: sum"), got_sum, sum, 1.0);
    }
}

#[test]
fn time_slices_set_from_outside_share_as_measured() {
    for (slices, share, total) in [([3_000, 7_000], 30.0, 96.0), ([10_000, 30_000], 25.2, 99.6)] {
        let (mut controller, handles) = controller(2);
        controller.run_for(SECOND);
        for (of, us) in handles.iter().zip(slices) {
            controller.set_slice(of, us);
        }
        let (begin, before) = (controller.now(), controller.completed());
        controller.run_for(20 * SECOND);
        let done: Vec<f64> =
            controller.completed().iter().zip(before).map(|(now, before)| now - before).collect();
        let sum = done[0] + done[1];
        assert_near(&format!("{slices:?}: share"), done[0] / sum * 100.0, share, 1.0);
        let got = sum * 200_000.0 / (controller.now() - begin) as f64 * 100.0;
        assert_near(&format!("{slices:?}: total"), got, total, 1.0);
    }
}

/// How two tenants are scheduled beside an LC tenant.
#[derive(Clone, Copy, PartialEq)]
enum HandOffs {
    /// By time slices only.
    None,
    /// Quanta of so many ms, each followed by a hand-off at once.
    Any([u64; 2]),
    /// The same, but the hand-off waits until the LC tenant is next idle.
    WhenIdle([u64; 2]),
}

/// GPU time of a request of the LC tenant, 20 kernels. Together with [`REST_NS`] (host and copies) this is its
/// latency on a GPU with the clocks of a busy one (§16: 863 µs; the simulated GPU has no slower clocks).
const REQUEST_NS: u64 = 500_000;
const REST_NS: u64 = 340_000;

struct Beside {
    p50_us: f64,
    p99_us: f64,
    sum: f64,
    share: f64,
}

/// An LC request every 10 ms beside two busy tenants.
fn beside(hand_offs: HandOffs) -> Beside {
    let (mut controller, handles) = controller(2);
    let mut lc = controller.bench.tenant(2_048, 0);
    lc.kernel_ns = REQUEST_NS / 20;
    let its = controller.take(lc.group);
    let (ms, when_idle) = match hand_offs {
        HandOffs::None => ([u64::MAX / SECOND; 2], false),
        HandOffs::Any(ms) => (ms, false),
        HandOffs::WhenIdle(ms) => (ms, true),
    };
    if hand_offs != HandOffs::None {
        controller.enable(&handles[1], false);
        controller.set_slice(&its, 1_000_000);
        handles.iter().for_each(|of| controller.set_slice(of, 1));
    }
    let (begin, before) = (controller.now(), controller.completed());
    let (mut holder, mut quantum_ends) = (0, begin + ms[0] * MS);
    let (mut numbers, mut arrival, mut latencies) = (RandomNumbers(1), begin, Vec::new());
    for _ in 0..2_000 {
        arrival += 10 * MS + numbers.below(40_000);
        (0..20).for_each(|_| submit(&mut controller.bench.engine, &lc, arrival));
        while controller.seen.len() < 20 {
            let next = controller.bench.engine.next_event().expect("there is work");
            if when_idle || next < quantum_ends {
                controller.run_to(next);
            } else {
                (holder, quantum_ends) = controller.hand_off(&handles, holder, ms);
            }
        }
        let (_, last) = controller.seen[19];
        controller.seen.clear();
        latencies.push((last + REST_NS - arrival) as f64 / 1e3);
        if when_idle && controller.now() >= quantum_ends {
            controller.run_to(last + REST_NS);
            (holder, quantum_ends) = controller.hand_off(&handles, holder, ms);
        }
    }
    latencies.sort_by(f64::total_cmp);
    let done: Vec<f64> =
        controller.completed().iter().zip(before).map(|(now, before)| now - before).collect();
    let sum = done[0] + done[1];
    Beside {
        p50_us: latencies[1_000],
        p99_us: latencies[1_980],
        sum: sum * 200_000.0 / (controller.now() - begin) as f64 * 100.0,
        share: done[0] / sum * 100.0,
    }
}

#[test]
fn lc_tenant_beside_two_in_quanta_waits_as_long_as_measured() {
    // Medians and 99th percentiles in µs, sum of the two against alone and share of the first in %, as in §13. A
    // training leaves the GPU idle now and then, and a part of the LC tenant's requests and switches (8.6 % of the time) fits
    // in. The tenants here never leave it idle, so their sum is lower by up to that part.
    let rows = [
        (HandOffs::None, 3_271.0, 5_544.0, 90.0, 50.0),
        (HandOffs::Any([50, 50]), 1_030.0, 1_212.0, 92.0, 50.0),
        (HandOffs::WhenIdle([50, 50]), 1_019.0, 1_043.0, 92.5, 49.5),
    ];
    for (row, (hand_offs, p50, p99, sum, share)) in rows.into_iter().enumerate() {
        let got = beside(hand_offs);
        assert_near(&format!("row {row}: p50"), got.p50_us, p50, p50 * 0.10);
        assert_near(&format!("row {row}: p99"), got.p99_us, p99, p99 * 0.15);
        let fits_in = if hand_offs == HandOffs::None { 6.0 } else { 3.0 };
        assert!((sum - fits_in..=sum + 1.5).contains(&got.sum), "row {row}: sum {}, measured {sum}", got.sum);
        assert_near(&format!("row {row}: share"), got.share, share, 1.0);
    }
}

#[test]
fn tiny_time_slices_are_safe_only_with_quanta() {
    let (mut controller, handles) = controller(2);
    handles.iter().for_each(|of| controller.set_slice(of, 1));
    let stuck = controller.completed();
    controller.run_for(60 * SECOND);
    assert_eq!(controller.completed(), stuck, "both run, and none gets anywhere");
    controller.enable(&handles[0], false);
    controller.run_for(SECOND);
    let done = controller.completed();
    assert_eq!(done[0], stuck[0]);
    assert_near("the one that runs", (done[1] - stuck[1]) / 50.0, 100.0, 0.5);
}

#[test]
fn idle_lc_tenant_costs_a_tenant_with_a_tiny_time_slice_nothing() {
    let (mut controller, handles) = controller(1);
    controller.set_slice(&handles[0], 1);
    let lc = controller.bench.tenant(1_000_000, 100);
    let before = controller.completed()[0];
    controller.run_for(10 * SECOND);
    assert_near("alone", (controller.completed()[0] - before) / 500.0, 100.0, 0.1);
    assert_eq!(controller.bench.engine.completed(lc.stream), Some(0));
}
