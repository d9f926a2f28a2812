//! Charges are compared with what the driver reports of the memory of processes.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::Hook;
use crate::support::memory::FakeMemory;
use crate::support::{GIB, MS, World, until};
use sluice_proto::control::{ProcessMemory, ReportMemoryRequest};

/// A manager that reads what the returned driver reports.
fn measuring() -> (World, FakeMemory) {
    let (mut world, memory) = (World::new(), FakeMemory::default());
    world.stop();
    world.memory = Some(memory.clone());
    world.start();
    (world, memory)
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

fn overhead(world: &World, client: &str) -> f64 {
    world.metric(&format!("sluice_memory_overhead_bytes{{client=\"{client}\"}}")).unwrap()
}

fn pid(hook: &Hook) -> i32 {
    hook.process.pid
}

#[test]
fn memory_beyond_the_charges_counts_towards_the_limit_and_is_shown_as_used() {
    let (world, memory) = measuring();
    let mut process = world.process("be-a");
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
fn memory_that_was_released_falsely_is_found_by_the_second_reading() {
    let (world, memory) = measuring();
    let mut process = world.process("lc");
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
    let mut process = world.process("be-a");
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
fn overhead_of_a_process_ends_with_it() {
    let (world, memory) = measuring();
    let (first, mut second) = (world.process("be-a"), world.process("be-a"));
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
    for _ in 0..4 {
        world.advance(400 * MS);
    }
    assert_eq!(memory.readings(), 0);
}

fn report(agent: &mut Agent, processes: &[(i32, &str, u64)]) -> Vec<(String, i32, u64)> {
    let processes = processes.iter().map(|(pid, pod_uid, bytes)| ProcessMemory {
        pid: *pid,
        pod_uid: (*pod_uid).to_owned(),
        bytes: Some(*bytes),
    });
    let request = ReportMemoryRequest { age_ns: 10 * MS, processes: processes.collect(), failed: false };
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
fn limit_below_the_cost_of_a_context_is_reported_with_the_process() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(3))]);
    let mut process = world.process_of(&uid(3));
    let (pid, uid) = (process.process.pid, uid(3));
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB - 1)]), []);
    let exceeded = vec![(uid.clone(), pid, GIB)];
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB)]), exceeded);
    assert!(!process.reserve(1));
    assert_eq!(report(&mut agent, &[(pid, &uid, GIB / 2)]), []);
    assert!(process.reserve(GIB / 2));
}
