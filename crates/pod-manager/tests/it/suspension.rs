//! Clients are suspended and resumed in the resource file of a running manager.

use crate::support::agent::{Agent, pod, uid};
use crate::support::group_processes::{quiet, two, works};
use crate::support::hook::Hook;
use crate::support::{CLIENTS, MIB, MS, World, until};
use sluice_comm::page::MovableMemory;
use sluice_pod_manager::{Config, Overcommit};
use sluice_proto::control::Client;
use std::fs;
use std::time::Duration;

/// The file with the key of this client.
fn with_suspended(clients: &str, client: &str) -> String {
    clients.replace(&format!("name: {client},"), &format!("name: {client}, suspended: true,"))
}

fn is_suspended(world: &World, client: &str) -> bool {
    world.metric(&format!("sluice_client_suspended{{client=\"{client}\"}}")) == Some(1.0)
}

/// Writes the file, and returns once it is in force.
fn define(world: &World, clients: &str, client: &str, suspended: bool) {
    fs::write(&world.file, clients).unwrap();
    until(&format!("{client} is suspended: {suspended}"), || is_suspended(world, client) == suspended);
}

#[test]
fn suspended_client_keeps_its_grant_to_the_deadline_and_gets_none_until_it_is_resumed() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    assert_eq!(a.granted(), 50.0);
    define(&world, &with_suspended(CLIENTS, "be-a"), "be-a", true);
    assert!(a.page().suspended() && a.page().deadline_ns() > 0);
    world.advance(50 * MS);
    a.give_back(50.0);
    a.want();
    for _ in 0..3 {
        b.want();
        assert_eq!(b.granted(), 50.0);
        world.advance(50 * MS);
        b.give_back(50.0);
        world.settle();
        assert!(a.token.is_silent() && a.page().deadline_ns() == 0);
    }
    define(&world, CLIENTS, "be-a", false);
    a.granted();
    assert!(!a.page().suspended());
}

#[test]
fn channel_groups_of_a_suspended_client_stay_disabled() {
    let world = World::new();
    let ((a, _ad), (b, _bd)) = two(&world);
    let enabled_ms = |group: u32| {
        let enabled = |_: &u64| {
            a.process.thaw();
            b.process.thaw();
            world.advance(5 * MS);
            quiet(&world);
            world.driver.group(group).0
        };
        5 * (0..100).filter(enabled).count()
    };
    define(&world, &with_suspended(CLIENTS, "be-a"), "be-a", true);
    quiet(&world);
    assert_eq!(enabled_ms(1), 0);
    assert_eq!(enabled_ms(2), 500, "the other client has all of the time");
    // Also alone.
    b.becomes(false, world.clock.now());
    assert_eq!(enabled_ms(1), 0);
    works(&world, &b);
    define(&world, CLIENTS, "be-a", false);
    assert!(enabled_ms(1) > 100);
}

#[test]
fn unlimited_grant_of_a_latency_critical_client_is_revoked_at_once() {
    let world = World::new();
    let mut lc = world.process("lc");
    lc.want();
    lc.granted();
    define(&world, &with_suspended(CLIENTS, "lc"), "lc", true);
    assert_eq!(lc.page().deadline_ns(), 0);
    lc.want();
    world.settle();
    world.advance(1_000 * MS);
    assert!(lc.token.is_silent());
    define(&world, CLIENTS, "lc", false);
    lc.granted();
}

/// Bytes of the memory that may leave.
const MOVABLE: u64 = 8 * MIB;

fn overcommit(config: &mut Config) {
    let quantum = Duration::from_millis(500);
    config.overcommit =
        Some(Overcommit { gpu_memory: 64 * MIB, host_memory: 64 * MIB, numa_node: None, quantum });
}

fn overcommitted() -> (World, String) {
    let clients = CLIENTS.replace("memory: 8Gi", "memory: 16Mi, overcommit: true");
    (World::with(&clients, overcommit), clients)
}

/// What the process reports of its memory, and that it wakes the manager.
fn reports(world: &World, hook: &Hook, resident: u64) {
    let memory = MovableMemory { need: MOVABLE, resident, waits: resident == 0, ..MovableMemory::default() };
    hook.report().report_movable_memory(memory);
    world.settle();
}

#[test]
fn memory_of_a_suspended_client_leaves_before_its_grants_end_and_returns_after_resumption() {
    let (mut world, clients) = overcommitted();
    let mut a = world.process("be-a");
    assert!(a.reserve(MOVABLE));
    reports(&world, &a, MOVABLE);
    until("the room is there", || a.page().memory_room() == Some(MOVABLE));
    let suspended = with_suspended(&clients, "be-a");
    fs::write(&world.file, &suspended).unwrap();
    until("the memory is to leave", || {
        // The thread that fills the host memory has to have ended.
        world.settle();
        a.page().memory_room() == Some(0)
    });
    assert!(a.page().suspended() && !is_suspended(&world, "be-a"));
    a.want();
    assert_eq!(a.granted(), 50.0, "a thread that waits for a grant keeps the memory on the GPU");
    a.give_back(1.0);
    reports(&world, &a, 0);
    until("it is suspended", || is_suspended(&world, "be-a"));
    a.want();
    world.settle();
    world.advance(30_000 * MS);
    world.settle();
    assert!(a.token.is_silent());
    assert_eq!(a.page().memory_room(), Some(0), "its memory waits for nothing");
    let waited = "sluice_memory_waited_seconds_total{client=\"be-a\"}";
    assert_eq!(world.metric(waited), Some(0.0));

    // The next manager reads the same file.
    world.stop();
    world.start();
    let mut a = Hook::attach(&world.socket(), &a.process, "be-a", MOVABLE).unwrap();
    reports(&world, &a, 0);
    until("it is suspended still", || is_suspended(&world, "be-a") && a.page().memory_room() == Some(0));
    a.want();
    world.settle();
    assert!(a.token.is_silent() && a.page().suspended());
    define(&world, &clients, "be-a", false);
    assert_eq!((a.granted(), a.page().memory_room()), (50.0, Some(MOVABLE)));
}

#[test]
fn suspended_client_that_does_not_leave_in_time_gets_no_grants_and_keeps_its_memory() {
    let (world, clients) = overcommitted();
    let mut a = world.process("be-a");
    assert!(a.reserve(MOVABLE));
    reports(&world, &a, MOVABLE);
    fs::write(&world.file, with_suspended(&clients, "be-a")).unwrap();
    until("the memory is to leave", || {
        world.settle();
        a.page().memory_room() == Some(0)
    });
    world.advance(20_000 * MS);
    until("its grants end", || is_suspended(&world, "be-a"));
    assert_eq!(a.page().memory_room(), Some(MOVABLE));
    a.want();
    world.settle();
    assert!(a.token.is_silent());
}

#[test]
fn agent_reads_that_grants_are_withheld_once_the_memory_has_left() {
    let world = World::for_agent(overcommit);
    let mut agent = Agent::connect(&world);
    let client = |suspended| Client { suspended, overcommit: true, memory_bytes: 16 * MIB, ..pod(&uid(1)) };
    agent.set(&[client(false), pod(&uid(2))]);
    let mut hook = world.process_of(&uid(1));
    assert!(hook.reserve(MOVABLE));
    reports(&world, &hook, MOVABLE);
    let withheld = |agent: &mut Agent, number| agent.usage(&uid(number)).unwrap().grants_withheld;
    assert!(!withheld(&mut agent, 1));
    agent.set(&[client(true), Client { suspended: true, ..pod(&uid(2)) }]);
    until("the memory is to leave", || {
        world.settle();
        hook.page().memory_room() == Some(0)
    });
    assert!(!withheld(&mut agent, 1) && agent.usage(&uid(1)).unwrap().client.unwrap().suspended);
    until("the other one has no memory that may leave", || withheld(&mut agent, 2));
    reports(&world, &hook, 0);
    until("it is suspended", || withheld(&mut agent, 1));
    agent.set(&[client(false), pod(&uid(2))]);
    assert!(!withheld(&mut agent, 1) && !withheld(&mut agent, 2));
}
