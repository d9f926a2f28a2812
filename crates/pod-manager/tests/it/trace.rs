//! What a reader of the trace socket sees, against the driver, the metrics and the pages of the processes.

use crate::support::group_processes::{quiet, two};
use crate::support::trace::TraceReader;
use crate::support::{CLIENTS, MS, World, until};
use sluice_comm::latency::LatencyKind;
use sluice_pod_manager::trace::{Decision, TraceEvent};
use std::time::Duration;

/// GPU time charged, nanoseconds. The metric has seconds.
fn charged_ns(world: &World, client: &str) -> u64 {
    let seconds = world.metric(&format!("sluice_gpu_seconds_total{{client=\"{client}\"}}")).unwrap();
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap()
}

fn decisions(reader: &TraceReader) -> impl Iterator<Item = &Decision> {
    reader.events.iter().filter_map(|event| match event {
        TraceEvent::Decision { decision, .. } => Some(decision),
        _ => None,
    })
}

#[test]
fn quanta_are_the_time_for_which_the_driver_had_the_groups_enabled_and_each_control_is_there() {
    let world = World::traced(CLIENTS);
    let mut reader = TraceReader::connect(&world);
    let ((_a, _ad), (_b, _bd)) = two(&world);
    let begin = world.clock.now();
    // By the driver: controls are made while time stands still.
    let mut enabled_ns = [0, 0];
    for _ in 0..300 {
        for (group, ns) in [1, 2].into_iter().zip(&mut enabled_ns) {
            *ns += if world.driver.group(group).0 { 7 * MS } else { 0 };
        }
        world.advance(7 * MS);
        quiet(&world);
        // On a busy machine the manager may be between the two controls of a hand-off.
        until("a group is enabled", || [1, 2].iter().any(|group| world.driver.group(*group).0));
    }
    let end = world.clock.now();
    reader.read_all(&world);
    assert_eq!(enabled_ns.iter().sum::<u64>(), end - begin, "the GPU is never idle");
    let quanta = reader.quanta(&world);
    for (client, enabled_ns) in ["be-a", "be-b"].into_iter().zip(enabled_ns) {
        let process = reader.process_of(client);
        let own = quanta.iter().filter(|(of, ..)| *of == process);
        let within = own.map(|(_, from, to)| (*to).min(end) - *from).sum::<u64>();
        assert_eq!(within, enabled_ns, "{client}");
        // One nanosecond has passed since; the metric is a number of seconds.
        let difference = charged_ns(&world, client).abs_diff(within);
        assert!(difference <= 100, "{client}: {difference} ns");
    }
    assert!(quanta.len() > 20, "{quanta:?}");
    let turns = decisions(&reader).filter(|it| matches!(it, Decision::Granted { by_groups: true, .. }));
    assert_eq!(Some(turns.count() as f64), world.metric("sluice_turns_total"));
    for control in ["stop", "start", "slice"] {
        let is_one = |event: &&TraceEvent| matches!(event, TraceEvent::Control { control: found, outcome, .. } if found == control && outcome == "done");
        let series = format!("sluice_controls_total{{control=\"{control}\",outcome=\"done\"}}");
        let count = reader.events.iter().filter(is_one).count();
        assert_eq!(Some(count as f64), world.metric(&series), "{control}");
    }
}

#[test]
fn grants_are_shown_with_reason_wait_and_charge() {
    let world = World::traced(CLIENTS);
    let mut reader = TraceReader::connect(&world);
    let (mut holder, mut waiter) = world.holder_and_waiter();
    let begin = world.clock.now();
    world.advance(20 * MS);
    holder.give_back(15.0);
    waiter.granted();
    world.advance(5 * MS);
    waiter.give_back(5.0);
    world.settle();
    reader.read_all(&world);
    let [first, second] = ["be-a", "be-b"].map(|client| reader.process_of(client));
    let expected = [(first, begin, begin + 20 * MS), (second, begin + 20 * MS, begin + 25 * MS)];
    assert_eq!(reader.quanta(&world), expected);
    let granted: Vec<(&str, u64)> = decisions(&reader)
        .filter_map(|decision| match decision {
            Decision::Granted { reason, waited_ns, .. } => Some((&**reason, *waited_ns)),
            _ => None,
        })
        .collect();
    assert_eq!(granted, [("alone", 0), ("alone", 20 * MS)]);
    let charged: Vec<(&str, u64, u64)> = decisions(&reader)
        .filter_map(|decision| match decision {
            Decision::Charged { reason, held_ns, charged_ns, .. } => Some((&**reason, *held_ns, *charged_ns)),
            _ => None,
        })
        .collect();
    assert_eq!(charged, [("returned", 20 * MS, 15 * MS), ("returned", 5 * MS, 5 * MS)]);
    assert_eq!([charged_ns(&world, "be-a"), charged_ns(&world, "be-b")], [15 * MS, 5 * MS]);
}

#[test]
fn later_reader_learns_of_the_quantum_that_runs() {
    let world = World::traced(CLIENTS);
    let ((_a, _ad), (_b, _bd)) = two(&world);
    world.advance(20 * MS);
    let mut reader = TraceReader::connect(&world);
    let joined = world.clock.now();
    world.advance(30 * MS);
    quiet(&world);
    reader.read_all(&world);
    let process = reader.process_of("be-a");
    let quanta = reader.quanta(&world);
    let first = quanta.iter().find(|(of, ..)| *of == process).unwrap();
    assert!(first.1 < joined && first.2 > joined, "{quanta:?}, joined at {joined}");
}

#[test]
fn work_holds_and_requests_of_a_service_are_shown_as_its_pages_report_them() {
    let world = World::traced(CLIENTS);
    let lc = world.process("lc");
    let mut reader = TraceReader::connect(&world);
    world.advance(2 * MS);
    let begin = world.clock.now();
    lc.becomes(true, begin);
    world.advance(MS);
    world.advance(2 * MS);
    // It became idle a while before the manager reads that.
    lc.report().add_busy_ns(3 * MS);
    lc.report().set_activity(false, begin + 3 * MS);
    lc.report().add_hold_ns(MS / 2);
    lc.report().add_latency(LatencyKind::Request, 3 * MS);
    world.advance(MS);
    reader.read_all(&world);
    let process = reader.process_of("lc");
    let (mut worked_ns, mut held_ns, mut requests) = (0, 0, Vec::new());
    for event in &reader.events {
        match *event {
            TraceEvent::Work { begin_ns, end_ns, process: of } => {
                assert!(of == process && begin_ns >= begin && end_ns <= begin + 3 * MS, "{event:?}");
                worked_ns += end_ns - begin_ns;
            }
            TraceEvent::Hold { process: of, held_ns: ns, .. } if of == process => held_ns += ns,
            TraceEvent::Requests { process: of, count, sum_ns, .. } if of == process => {
                requests.push((count, sum_ns));
            }
            _ => {}
        }
    }
    assert_eq!((worked_ns, held_ns, requests), (3 * MS, MS / 2, vec![(1, 3 * MS)]));
    assert_eq!(charged_ns(&world, "lc"), 3 * MS);
    assert_eq!(world.metric("sluice_request_seconds_count{client=\"lc\"}"), Some(1.0));
}

/// Each advance is a reading of every service, and an event for each of them.
#[test]
fn reader_that_does_not_read_loses_events_and_holds_up_neither_the_manager_nor_another_reader() {
    const SERVICES: u64 = 40;
    const ADVANCES: u64 = 1500;
    let world = World::traced(CLIENTS);
    let services: Vec<_> = (0..SERVICES).map(|_| world.process("lc")).collect();
    let (mut idle, mut other) = (TraceReader::connect(&world), TraceReader::connect(&world));
    services.iter().for_each(|service| service.becomes(true, world.clock.now()));
    let worked = |events: &[TraceEvent]| {
        let ns = events.iter().filter_map(|event| match event {
            TraceEvent::Work { begin_ns, end_ns, .. } => Some(end_ns - begin_ns),
            _ => None,
        });
        ns.sum::<u64>()
    };
    let begin = world.clock.now();
    for advance in 0..ADVANCES {
        world.advance(MS);
        if advance % 50 == 0 {
            other.read_all(&world);
        }
    }
    other.read_all(&world);
    let elapsed_ns = world.clock.now() - begin;
    assert_eq!(worked(&other.events), SERVICES * elapsed_ns);
    assert!(!other.events.iter().any(|event| matches!(event, TraceEvent::Lost { .. })));
    idle.read_all(&world);
    let lost: u64 = idle
        .events
        .iter()
        .filter_map(|event| if let TraceEvent::Lost { count, .. } = event { Some(*count) } else { None })
        .sum();
    assert!(lost > 10_000, "{lost}");
    let before = worked(&idle.events);
    world.advance(MS);
    idle.read_all(&world);
    assert!(worked(&idle.events) > before, "it receives later events");
}

#[test]
fn reader_that_leaves_makes_room_for_another() {
    let world = World::traced(CLIENTS);
    let mut readers: Vec<TraceReader> = (0..4).map(|_| TraceReader::connect(&world)).collect();
    assert!(TraceReader::try_connect(&world).is_none(), "four readers at once");
    readers.pop();
    until("another reader is served", || TraceReader::try_connect(&world).is_some());
    drop(readers);
    // The manager goes on as before.
    let mut process = world.process("be-a");
    process.want();
    process.granted();
}
