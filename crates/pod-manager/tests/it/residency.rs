//! Memory that leaves the GPU while clients work and pause.

use crate::support::hook::Hook;
use crate::support::{CLIENTS, MIB, MS, World, until};
use sluice_comm::page::MovableMemory;
use sluice_pod_manager::{Config, Overcommit};
use std::time::Duration;

/// Bytes of a process that may leave.
const MOVABLE: u64 = 8 * MIB;

/// Clients whose memory may leave, on a GPU with this much for all.
fn overcommitted(gpu_memory: u64) -> World {
    let movable = "memory: 16Mi, overcommit: true";
    let clients = CLIENTS.replace("memory: 8Gi", movable).replace("memory: 10Gi", movable);
    World::with(&clients, |config: &mut Config| {
        let quantum = Duration::from_secs(10);
        config.overcommit = Some(Overcommit { gpu_memory, host_memory: 64 * MIB, numa_node: None, quantum });
    })
}

/// The process reports its memory, and wakes the manager.
fn reports(world: &World, hook: &Hook, resident: u64) {
    let memory = MovableMemory { need: MOVABLE, resident, waits: resident == 0, ..MovableMemory::default() };
    hook.report().report_movable_memory(memory);
    world.settle();
}

fn has_room(world: &World, hook: &Hook, room: u64) -> bool {
    // The thread that fills the host memory has to have ended.
    world.settle();
    hook.page().memory_room() == Some(room)
}

#[test]
fn memory_moves_in_small_pieces_while_a_latency_critical_client_works_and_a_second_longer() {
    let world = overcommitted(64 * MIB);
    let (mut a, lc) = (world.process("be-a"), world.process("lc"));
    assert!(a.reserve(MOVABLE));
    reports(&world, &a, MOVABLE);
    until("the room is there", || has_room(&world, &a, MOVABLE));
    let paced = |ms: u64| {
        world.advance(ms * MS);
        reports(&world, &a, MOVABLE);
        a.page().paced_moves()
    };
    lc.becomes(true, world.clock.now());
    assert!(paced(1));
    assert!(paced(5_000), "it works for long");
    lc.becomes(false, world.clock.now());
    assert!(paced(900));
    assert!(!paced(200));
}

#[test]
fn process_has_no_room_decided_before_it_has_reported_its_memory() {
    let world = overcommitted(64 * MIB);
    let mut a = world.process("be-a");
    // As of a process that attaches anew with memory: room for none would send it away.
    assert!(a.reserve(MOVABLE));
    world.settle();
    assert_eq!(a.page().memory_room(), None);
    reports(&world, &a, MOVABLE);
    until("the room is there", || has_room(&world, &a, MOVABLE));
    a.report().report_movable_memory(MovableMemory::default());
    until("it has freed all of it", || has_room(&world, &a, 0));
}

#[test]
fn latency_critical_client_knows_when_memory_of_others_moves() {
    let world = overcommitted(12 * MIB);
    let (mut a, mut b, lc) = (world.process("be-a"), world.process("be-b"), world.process("lc"));
    assert!(a.reserve(MOVABLE));
    reports(&world, &a, MOVABLE);
    until("the room is there", || has_room(&world, &a, MOVABLE));
    let moves = |hook: &Hook| hook.page().memory_moves();
    assert!(!moves(&lc), "nothing moves yet");
    assert!(b.reserve(MOVABLE));
    reports(&world, &b, 0);
    until("the first one leaves", || has_room(&world, &a, 0));
    assert!(moves(&lc) && !moves(&a) && !moves(&b));
    reports(&world, &a, 0);
    until("the second one returns", || has_room(&world, &b, MOVABLE));
    assert!(moves(&lc));
    reports(&world, &b, MOVABLE);
    assert!(!moves(&lc), "all is where it is to be");
}

#[test]
fn idle_client_gives_its_memory_up_before_the_quantum_ends() {
    let world = overcommitted(12 * MIB);
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    let take = |hook: &mut Hook, resident: u64| {
        assert!(hook.reserve(MOVABLE));
        reports(&world, hook, resident);
    };
    a.becomes(true, world.clock.now());
    take(&mut a, MOVABLE);
    until("the room is there", || has_room(&world, &a, MOVABLE));
    take(&mut b, 0);
    // The first switch, after which a quantum begins.
    until("the first one leaves", || has_room(&world, &a, 0));
    reports(&world, &a, 0);
    until("the second one returns", || has_room(&world, &b, MOVABLE));
    b.becomes(true, world.clock.now());
    reports(&world, &b, MOVABLE);
    world.advance(2_000 * MS);
    assert!(has_room(&world, &b, MOVABLE), "its quantum is 10 s");
    b.becomes(false, world.clock.now());
    world.advance(150 * MS);
    assert!(has_room(&world, &b, MOVABLE), "it may have paused only");
    world.advance(100 * MS);
    until("it leaves for the first one", || has_room(&world, &b, 0));
}
