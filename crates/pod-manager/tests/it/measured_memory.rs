//! Charges are compared with what the driver reports of the memory of processes.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::{Hook, Line};
use crate::support::memory::FakeMemory;
use crate::support::{GIB, MIB, MS, World, until};
use sluice_comm::{AttachStatus, Channel, RequestBody};
use sluice_proto::control::{ProcessMemory, ReportMemoryRequest};

/// A manager that reads what the returned driver reports.
fn measuring() -> (World, FakeMemory) {
    let (mut world, memory) = (World::new(), FakeMemory::default());
    world.stop();
    world.memory = Some(memory.clone());
    world.start();
    (world, memory)
}

/// A process of a client, whose attach is no longer the cause of a reading.
fn process(world: &World, client: &str) -> Hook {
    let process = world.process(client);
    world.settle();
    world.advance(20 * MS);
    process
}

fn readings(world: &World, outcome: &str) -> f64 {
    world.metric(&format!("sluice_memory_readings_total{{outcome=\"{outcome}\"}}")).unwrap()
}

/// Lets the time of the next reading come, and waits until its result is in force.
fn read(world: &World, outcome: &str) {
    let before = readings(world, outcome);
    world.advance(400 * MS);
    until("a reading", || readings(world, outcome) > before);
}

/// Lets the times of some readings pass, at which none is made.
fn expect_no_reading(world: &World, memory: &FakeMemory) {
    let before = memory.readings();
    for _ in 0..4 {
        world.advance(400 * MS);
        world.settle();
    }
    assert_eq!(memory.readings(), before);
}

fn overhead(world: &World, client: &str) -> f64 {
    world.metric(&format!("sluice_memory_overhead_bytes{{client=\"{client}\"}}")).unwrap()
}

fn pid(hook: &Hook) -> i32 {
    hook.process.pid
}

#[test]
fn memory_beyond_the_charges_counts_towards_the_limit_and_is_shown_as_used() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    assert!(process.reserve(GIB));
    memory.set(pid(&process), Some(3 * GIB));
    read(&world, "complete");
    assert_eq!(overhead(&world, "be-a"), 2.0 * GIB as f64);
    assert_eq!(process.account(), (3 * GIB, 8 * GIB), "used and limit");
    assert!(!process.reserve(5 * GIB + 1));
    assert!(process.reserve(5 * GIB));
    assert_eq!(overhead(&world, "be-b"), 0.0);
}

#[test]
fn first_reservation_of_a_process_counts_its_context() {
    let (world, memory) = measuring();
    let mut process = process(&world, "lc");
    let readings = memory.readings();
    memory.set(pid(&process), Some(GIB / 2));
    assert!(!process.reserve(GIB / 2 + 1), "the limit is 1 GiB");
    assert!(process.reserve(GIB / 2));
    assert_eq!(memory.readings(), readings + 1);
}

#[test]
fn first_reservation_counts_the_context_of_a_process_that_follows_one_with_much_memory() {
    let (world, memory) = measuring();
    let mut first = process(&world, "lc");
    memory.set(pid(&first), Some(0));
    assert!(first.reserve(GIB));
    first.process.die();
    until("the end of the process", || world.metric("sluice_memory_used_bytes{client=\"lc\"}") == Some(0.0));
    read(&world, "complete");
    expect_no_reading(&world, &memory);
    let mut second = process(&world, "lc");
    memory.set(pid(&second), Some(GIB / 2));
    assert!(!second.reserve(GIB / 2 + 1), "the limit is 1 GiB");
    assert!(second.reserve(GIB / 2));
}

#[test]
fn first_reservation_waits_for_a_reading_that_began_after_it() {
    let (world, memory) = measuring();
    let (mut first, mut second) = (process(&world, "be-a"), process(&world, "lc"));
    assert!(first.reserve(1));
    memory.set(pid(&second), Some(GIB));
    world.advance(MS);
    second.memory.send(RequestBody::MemUpdate { bytes: 1, allocate: true });
    world.settle();
    assert!(second.memory.is_silent(), "readings keep a distance of 20 ms");
    world.advance(19 * MS);
    assert!(!second.granted_memory());
}

#[test]
fn second_reservation_waits_beside_the_first_one() {
    let (world, memory) = measuring();
    let mut process = process(&world, "lc");
    memory.set(pid(&process), Some(GIB));
    memory.block(true);
    for _ in 0..2 {
        process.memory.send(RequestBody::MemUpdate { bytes: 1, allocate: true });
    }
    world.settle();
    assert!(process.memory.is_silent());
    memory.block(false);
    assert!(!process.granted_memory(), "the context fills the limit");
    assert!(!process.granted_memory());
}

/// The program closes the descriptor, and its hook connects anew, declares what it holds and reserves again.
#[test]
fn waiting_reservation_ends_with_its_connection() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    memory.set(pid(&process), Some(0));
    memory.block(true);
    process.memory.send(RequestBody::MemUpdate { bytes: GIB, allocate: true });
    world.settle();
    process.memory = Line::open(&world.socket(), &process.process, "be-a").unwrap();
    assert_eq!(process.memory.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
    process.memory.send(RequestBody::MemUpdate { bytes: GIB, allocate: true });
    world.settle();
    memory.block(false);
    assert!(process.granted_memory());
    assert_eq!(process.account(), (GIB, 8 * GIB), "used and limit");
}

/// A reading takes locks of the driver.
#[test]
fn processes_that_attach_again_and_again_cause_few_readings() {
    let (world, memory) = measuring();
    let before = memory.readings();
    let begun = world.clock.now();
    while world.clock.now() < begun + 1000 * MS {
        let mut process = process(&world, "be-a");
        process.memory.send(RequestBody::MemUpdate { bytes: 1, allocate: true });
        world.settle();
    }
    let readings = memory.readings() - before;
    assert!((16..=23).contains(&readings), "4 at once, 16 a second, and the regular ones: {readings}");
}

#[test]
fn first_reservation_waits_100_ms_for_a_driver_that_does_not_answer() {
    let (world, memory) = measuring();
    let mut process = process(&world, "lc");
    memory.set(pid(&process), Some(GIB));
    memory.block(true);
    process.memory.send(RequestBody::MemUpdate { bytes: GIB, allocate: true });
    world.settle();
    world.advance(99 * MS);
    world.settle();
    assert!(process.memory.is_silent());
    world.advance(MS);
    assert!(process.granted_memory());
    memory.block(false);
}

#[test]
fn first_reservation_waits_for_the_reading_that_the_agent_is_asked_for() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    assert_eq!(report(&mut agent, &[]), []);
    let mut process = world.process_of(&uid(1));
    world.advance(10 * MS);
    process.memory.send(RequestBody::MemUpdate { bytes: GIB, allocate: true });
    assert!(agent.next_reading());
    assert!(process.memory.is_silent());
    assert_eq!(report(&mut agent, &[(process.process.pid, &uid(1), GIB / 2)]), []);
    assert!(process.memory.is_silent(), "that reading began 10 ms ago, before the reservation came");
    world.advance(20 * MS);
    assert_eq!(report(&mut agent, &[(process.process.pid, &uid(1), GIB / 2)]), []);
    assert!(!process.granted_memory());
}

fn violations(world: &World, client: &str) -> f64 {
    let series = format!("sluice_violations_total{{client=\"{client}\",kind=\"memory_limit\"}}");
    world.metric(&series).unwrap()
}

#[test]
fn memory_above_the_limit_is_a_violation_once() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    assert!(process.reserve(8 * GIB));
    for (bytes, expected) in [
        // Modules that are loaded late.
        (8 * GIB + 64 * MIB, 0.0),
        (9 * GIB, 1.0),
        (10 * GIB, 1.0),
        (8 * GIB, 1.0),
        (9 * GIB, 2.0),
    ] {
        memory.set(pid(&process), Some(bytes));
        read(&world, "complete");
        read(&world, "complete");
        assert_eq!(violations(&world, "be-a"), expected, "{bytes} bytes");
    }
}

#[test]
fn context_above_a_small_limit_is_no_violation() {
    let (world, memory) = measuring();
    let process = process(&world, "lc");
    memory.set(pid(&process), Some(2 * GIB));
    read(&world, "complete");
    assert_eq!(violations(&world, "lc"), 0.0, "1 GiB above the limit of 1 GiB");
    memory.set(pid(&process), Some(2 * GIB + MIB));
    read(&world, "complete");
    assert_eq!(violations(&world, "lc"), 1.0);
}

#[test]
fn memory_that_was_released_falsely_is_found_by_the_second_reading() {
    let (world, memory) = measuring();
    let mut process = process(&world, "lc");
    assert!(process.reserve(GIB));
    memory.set(pid(&process), Some(GIB));
    read(&world, "complete");
    for _ in 0..3 {
        assert!(process.release(GIB));
        assert!(process.reserve(GIB));
    }
    assert!(process.release(GIB));
    memory.set(pid(&process), Some(4 * GIB));
    read(&world, "complete");
    read(&world, "complete");
    assert!(!process.reserve(1));
    assert_eq!(process.account(), (4 * GIB, GIB));
}

#[test]
fn process_of_which_the_driver_reports_no_memory_keeps_the_overhead_of_its_client() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    memory.set(pid(&process), Some(GIB));
    read(&world, "complete");
    memory.set(pid(&process), None);
    read(&world, "unavailable");
    assert_eq!(process.account(), (GIB, 8 * GIB));
    memory.set_failing(true);
    read(&world, "failed");
    assert_eq!(process.account(), (GIB, 8 * GIB));
}

#[test]
fn reservation_that_was_decided_without_a_reading_is_not_the_first_one() {
    let (world, memory) = measuring();
    let mut process = process(&world, "lc");
    memory.set_failing(true);
    read(&world, "failed");
    assert!(process.reserve(1), "no reading comes");
    memory.set_failing(false);
    read(&world, "complete");
    memory.set(pid(&process), Some(GIB / 2));
    world.advance(20 * MS);
    assert!(!process.reserve(GIB / 2 + 1), "the limit is 1 GiB");
}

#[test]
fn idle_manager_does_not_repeat_a_reading_that_fails() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    assert!(process.reserve(GIB));
    memory.set_failing(true);
    process.process.die();
    until("the end of the process", || world.metric("sluice_processes{client=\"be-a\"}") == Some(0.0));
    read(&world, "failed");
    expect_no_reading(&world, &memory);
}

#[test]
fn overhead_of_a_process_ends_with_it() {
    let (world, memory) = measuring();
    let (first, mut second) = (process(&world, "be-a"), process(&world, "be-a"));
    memory.set(pid(&first), Some(2 * GIB));
    memory.set(pid(&second), Some(GIB));
    read(&world, "complete");
    assert_eq!(second.account().0, 3 * GIB);
    first.process.die();
    until("the end of the process", || second.account().0 == GIB);
}

#[test]
fn memory_is_not_read_while_there_is_no_process() {
    let (world, memory) = measuring();
    expect_no_reading(&world, &memory);
}

/// Also what was read before it reserved memory. One reading follows, because the charges that have ended would hide overhead later.
#[test]
fn all_overhead_of_a_process_ends_with_it_and_one_reading_follows() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    memory.set(pid(&process), Some(2 * GIB));
    read(&world, "complete");
    assert!(process.reserve(GIB));
    read(&world, "complete");
    assert_eq!(process.account().0, 3 * GIB, "the reading may lag behind the allocation");
    process.process.die();
    let processes = || world.metric("sluice_processes{client=\"be-a\"}");
    until("the end of the process", || processes() == Some(0.0));
    assert_eq!(overhead(&world, "be-a"), 0.0);
    read(&world, "complete");
    expect_no_reading(&world, &memory);
}

#[test]
fn memory_of_an_attached_process_is_not_counted_for_a_client_that_a_connection_of_it_names() {
    let (world, memory) = measuring();
    let mut process = process(&world, "be-a");
    let mut raw = Line::open(&world.socket(), &process.process, "be-b").unwrap();
    raw.ask(RequestBody::MemLimit);
    memory.set(pid(&process), Some(GIB));
    read(&world, "complete");
    assert_eq!([overhead(&world, "be-a"), overhead(&world, "be-b")], [GIB as f64, 0.0]);
    assert_eq!(process.account().0, GIB);
}

/// Reports a reading that began 10 ms ago. Returns the limits that it exceeds.
fn report(agent: &mut Agent, processes: &[(i32, &str, u64)]) -> Vec<(String, i32, u64)> {
    let processes = processes.iter().map(|(pid, pod_uid, bytes)| ProcessMemory {
        pid: *pid,
        pod_uid: (*pod_uid).to_owned(),
        bytes: Some(*bytes),
    });
    let request = ReportMemoryRequest {
        age_ns: 10 * MS,
        processes: processes.collect(),
        failed: false,
        energy_mj: None,
    };
    let exceeded = agent.report_memory(request).exceeded;
    exceeded.into_iter().map(|one| (one.pod_uid, one.pid, one.process_bytes)).collect()
}

#[test]
fn reading_of_the_agent_counts_the_unhooked_processes_of_a_pod_in_full() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let mut process = world.process_of(&uid(1));
    assert!(process.reserve(GIB / 4));
    let hooked = process.process.pid;
    let rows = [(hooked, uid(1), GIB / 2), (77, uid(1), GIB / 8), (78, uid(2), GIB / 16)];
    let rows: Vec<_> = rows.iter().map(|(pid, uid, bytes)| (*pid, uid.as_str(), *bytes)).collect();
    assert_eq!(report(&mut agent, &rows), []);
    assert_eq!(process.account(), (GIB / 2 + GIB / 8, GIB));
    assert_eq!(agent.usage(&uid(1)).unwrap().memory_overhead_bytes, GIB / 4 + GIB / 8);
    assert_eq!(agent.usage(&uid(2)).unwrap().memory_overhead_bytes, GIB / 16);
    assert_eq!(agent.snapshot().memory_readings["complete"], 1);
}

#[test]
fn limit_lowered_below_the_use_is_not_reported_as_reached_by_overhead() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(4))]);
    let mut process = world.process_of(&uid(4));
    assert!(process.reserve(GIB));
    let mut lower = pod(&uid(4));
    lower.memory_bytes = GIB / 4;
    agent.set(&[lower]);
    let (pid, uid) = (process.process.pid, uid(4));
    for _ in 0..2 {
        assert_eq!(report(&mut agent, &[(pid, &uid, GIB + GIB / 8)]), []);
    }
    assert_eq!(agent.usage(&uid).unwrap().memory_overhead_bytes, GIB / 8);
}

#[test]
fn limit_below_the_cost_of_a_context_is_reported_with_the_process() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(3))]);
    let mut process = world.process_of(&uid(3));
    let (pid, uid) = (process.process.pid, uid(3));
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB - 1)]), []);
    let exceeded = vec![(uid.clone(), pid, GIB)];
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB)]), exceeded);
    process.memory.send(RequestBody::MemUpdate { bytes: 1, allocate: true });
    world.settle();
    // No further reading comes.
    world.advance(100 * MS);
    assert!(!process.granted_memory());
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB / 2)]), []);
    assert!(process.reserve(GIB / 2));
}
