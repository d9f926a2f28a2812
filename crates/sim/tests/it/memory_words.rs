//! Streams that wait for words and kernels that poll them, compared with `docs/reference/gpu.md` §3 and §16 (hold
//! kernels) and §4 (stream gates).

use crate::busy_engine::{BusyEngine, RandomNumbers, Tenant, assert_near, submit};
use sluice_sim::engine::{
    Command, Compare, Condition, CopyEngine, Engine, HoldParams, Node, StreamId, StreamKind, Work,
};
use sluice_sim::params;
use std::sync::Arc;

const WORD: u64 = 0x1000;
const MS: u64 = 1_000_000;

fn at_least(value: u64) -> Command {
    let compare = Compare::AtLeast;
    Command::MemOp(Some(Condition { address: WORD, value, compare, is_wide: false }))
}

/// How requests are announced.
#[derive(Clone, Copy)]
struct HoldPlan {
    /// Kernels that hold the GPU, one behind the other.
    holds: u32,
    /// How long before the request.
    lead_us: u64,
}

/// Latencies of 1,000 requests of an LC tenant, in µs, sorted: one kernel of 100 µs every 3-5 ms, beside a tenant
/// with kernels of 1 ms and this time slice.
fn latencies_with_holds(slice_us: u64, plan: HoldPlan) -> Vec<f64> {
    let mut bench = BusyEngine::new();
    bench.saturate(slice_us, 1_000);
    let lc = bench.tenant(1_000_000, 100);
    let side = bench.engine.add_stream(lc.group, StreamKind::NonBlocking, 0, 0);
    let mut numbers = RandomNumbers(1);
    let (mut at, mut latencies) = (10 * MS, Vec::new());
    for ticket in 1..=1_000 {
        bench.run_to(at - plan.lead_us * 1_000, |_, _| {});
        for _ in 0..plan.holds {
            hold(&mut bench.engine, side, ticket, MS);
        }
        bench.run_to(at, |_, _| {});
        submit(&mut bench.engine, &lc, at);
        // The host stores the word when the launch is with the GPU.
        bench.run_to(at + params::SUBMIT_NS, |_, _| {});
        bench.engine.set_word(lc.owner, WORD, ticket.into());
        let next = at + 3 * MS + numbers.below(2 * MS);
        bench.run_to(next - plan.lead_us * 1_000, |stream, done| {
            if stream == lc.stream {
                latencies.push((done + params::HOST_RETURN_NS - at) as f64 / 1e3);
            }
        });
        at = next;
    }
    assert_eq!(latencies.len(), 1_000);
    latencies.sort_by(f64::total_cmp);
    latencies
}

fn hold(engine: &mut Engine, on: StreamId, value: u32, timeout_ns: u64) {
    let params = HoldParams { ticket: value, timeout_ns, longest_ns: timeout_ns, ..HoldParams::default() };
    let work = Work::Hold { address: WORD, params, name: 0, times: [u64::MAX; 3] };
    assert!(engine.submit(on, engine.now(), Command::Work(work)).is_some(), "the stream is open");
}

#[test]
fn two_hold_kernels_hide_the_context_switch_and_one_adds_to_it() {
    let at = |latencies: &[f64], part: usize| latencies[latencies.len() * part / 100];
    for slice in [1, 100] {
        let hidden = latencies_with_holds(slice, HoldPlan { holds: 2, lead_us: 300 + slice });
        assert_near(&format!("two, slice {slice}: p50"), at(&hidden, 50), 112.0, 11.2);
        assert_near(&format!("two, slice {slice}: p99"), at(&hidden, 99), 116.0, 11.6);
    }
    let partly = latencies_with_holds(100, HoldPlan { holds: 2, lead_us: 200 });
    assert_near("lead 200: p50", at(&partly, 50), 148.0, 30.0);
    // The time slice of the measurement is not recorded: it was between 1 and 100 µs.
    let without = latencies_with_holds(50, HoldPlan { holds: 0, lead_us: 0 });
    let one = latencies_with_holds(50, HoldPlan { holds: 1, lead_us: 300 });
    assert_near("one: p50", at(&one, 50), 519.0, 51.9);
    assert!(at(&one, 50) > at(&without, 50), "one hold kernel has to be worse than none");
}

#[test]
fn unreleased_hold_kernel_ends_by_itself() {
    let mut bench = BusyEngine::new();
    bench.saturate(1, 1_000);
    let lc = bench.tenant(1_000_000, 100);
    hold(&mut bench.engine, lc.stream, 1, 2 * MS);
    hold(&mut bench.engine, lc.stream, 1, 0);
    let mut ends = Vec::new();
    bench.run_to(20 * MS, |_, at| ends.push(at));
    // The first has been polling alone since the second ended: it was not kept on, but it ran for its time.
    assert_eq!(ends.len(), 2);
    let row = &bench.engine.ledger().processes[lc.owner.0];
    assert_eq!(row.kernel_ns, 2 * MS + params::MIN_KERNEL_NS);
    let done = bench.completed(bench.busy[0].owner);
    assert!((16..=18).contains(&done), "the other goes on: {done}");
}

/// An LC tenant whose request is a copy and then a graph of 500 µs of kernels; returns its median latency in µs.
fn copy_then_graph(lead_us: u64, same_stream: bool, holds: u32) -> f64 {
    let mut bench = BusyEngine::new();
    bench.saturate(1, 1_000);
    let lc: Tenant = bench.tenant(1_000_000, 0);
    let side = bench.engine.add_stream(lc.group, StreamKind::NonBlocking, 0, 0);
    let kernel = Work::Kernel { ns: 25_000, sms: params::SMS, name: 0 };
    let nodes = (0..20).map(|index| Node {
        work: kernel,
        successors: if index < 19 { vec![index + 1] } else { Vec::new() },
    });
    let graph =
        Arc::new(sluice_sim::engine::Graph::new(nodes.collect(), false).expect("successors come later"));
    let mut latencies = Vec::new();
    for ticket in 1..=100 {
        let at = u64::from(ticket) * 10 * MS;
        bench.run_to(at - lead_us * 1_000, |_, _| {});
        for _ in 0..holds {
            hold(&mut bench.engine, if same_stream { lc.stream } else { side }, ticket, MS);
        }
        bench.run_to(at, |_, _| {});
        let copy = Work::Copy { engine: CopyEngine::ToDevice, bytes: 602_112 };
        bench.engine.submit(lc.stream, at, Command::Work(copy));
        let last = bench.engine.submit(lc.stream, at, Command::Graph(graph.clone()));
        // The host is done with enqueueing.
        bench.run_to(at + 20_000, |_, _| {});
        bench.engine.set_word(lc.owner, WORD, ticket.into());
        bench.run_to(at + 5 * MS, |stream, done| {
            if stream == lc.stream {
                latencies.push((done, done - at));
            }
        });
        let (_, latency) = latencies.pop().expect("the request is served");
        assert_eq!(bench.engine.completed(lc.stream), last);
        latencies.clear();
        latencies.push((0, latency));
    }
    latencies[0].1 as f64 / 1e3
}

#[test]
fn hold_kernel_needs_a_stream_beside_the_requests() {
    let without = copy_then_graph(0, false, 0);
    let beside = copy_then_graph(300, false, 2);
    let within = copy_then_graph(300, true, 2);
    let late = copy_then_graph(0, false, 2);
    assert!(without - beside > 150.0, "{without} without, {beside} beside");
    // The copy runs after the hold kernel. Nothing computes during it, so the context is taken off again.
    assert!(within > beside + 150.0, "{within} within, {beside} beside");
    assert!(late < without && late > beside, "{late} with no lead");
}

#[test]
fn stream_gate_stops_queued_work_after_the_running_kernel() {
    let mut bench = BusyEngine::new();
    let tenant = bench.tenant(2_048, 1_000);
    for _ in 0..64 {
        bench.engine.submit(tenant.stream, 0, at_least(1)).unwrap();
        submit(&mut bench.engine, &tenant, 0);
    }
    bench.run_to(10 * MS, |_, _| {});
    assert_eq!(bench.completed(tenant.owner), 0);
    bench.engine.set_word(tenant.owner, WORD, 1);
    bench.run_to(13 * MS + MS / 2, |_, _| {});
    assert_eq!(bench.completed(tenant.owner), 3);
    bench.engine.set_word(tenant.owner, WORD, 0);
    bench.run_to(60 * MS, |_, _| {});
    assert_eq!(bench.completed(tenant.owner), 4, "the running one finished, none began");
    bench.engine.set_word(tenant.owner, WORD, 1);
    bench.run_to(130 * MS, |_, _| {});
    assert_eq!(bench.completed(tenant.owner), 64);
}

#[test]
fn open_stream_gates_cost_as_measured() {
    // Kernel in µs; kernels per gate; time per kernel without and with, in µs (§4).
    for (kernel_ns, every, with) in [(2_000, 1, 3.5), (2_000, 8, 2.2), (10_000, 1, 11.5)] {
        let mut bench = BusyEngine::new();
        let mut tenant = bench.tenant(2_048, 1);
        tenant.kernel_ns = kernel_ns;
        for index in 0..800 {
            if index % every == 0 {
                bench.engine.submit(tenant.stream, 0, at_least(0)).unwrap();
            }
            submit(&mut bench.engine, &tenant, 0);
        }
        let mut last = 0;
        bench.run_to(100 * MS, |_, at| last = at);
        assert_near(&format!("{kernel_ns} ns, gate each {every}"), last as f64 / 800e3, with, 0.2);
    }
}

#[test]
fn context_that_waits_for_a_word_leaves_the_gpu_to_others() {
    let mut bench = BusyEngine::new();
    bench.saturate(1, 1_000);
    let lc = bench.tenant(1_000_000, 100);
    bench.engine.submit(lc.stream, 0, at_least(1)).unwrap();
    submit(&mut bench.engine, &lc, 0);
    bench.run_to(100 * MS, |_, _| {});
    let alone = bench.completed(bench.busy[0].owner);
    assert!(alone >= 99, "{alone}");
    bench.engine.set_word(lc.owner, WORD, 1);
    bench.run_to(101 * MS, |_, _| {});
    assert_eq!(bench.completed(lc.owner), 1);
}
