//! The work of one round of the event loop is bounded, counted in readings of the clock: each event and each decision needs a few.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::{Hook, Line, payload};
use crate::support::{MS, World, allow_descriptors};
use sluice_comm::attach::ATTACH_VERSION;
use sluice_comm::{Channel, RequestBody};
use std::os::fd::AsFd;
use std::time::Duration;

/// A manager with so many clients and grants of 1 ms, a process of the first client, and a connection of the old protocol for each.
fn crowd(clients: usize) -> (World, Hook, Vec<Line>) {
    allow_descriptors();
    let name = |client| format!("client-{client}");
    let file =
        (0..clients).map(|client| format!("  - {{ name: {}, request: 0.0, memory: 1Gi }}\n", name(client)));
    let world = World::with(&format!("clients:\n{}", file.collect::<String>()), |config| {
        let ms = Duration::from_millis(1);
        (config.base_quota, config.min_quota, config.max_quota) = (ms, ms, ms);
    });
    let hook = world.process(&name(0));
    let open = |client| Line::open(&world.socket(), &world.peers.process(), &name(client)).unwrap();
    let lines = (0..clients).map(open).collect();
    world.settle();
    (world, hook, lines)
}

fn request_grants(lines: &mut [Line]) {
    for line in lines {
        line.send(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 });
    }
}

/// Whether the manager answers a request for memory before it has read the clock so many times.
fn answers_within(readings: u64, world: &World, hook: &mut Hook) -> bool {
    hook.memory.send(RequestBody::MemLimit);
    world.clock.let_read(readings);
    let answered = !hook.memory.is_silent();
    world.clock.step_per_reading(0);
    world.clock.let_go();
    answered
}

/// Each decision takes as long as a grant lasts, so the next one is due at once. The manager would decide a thousand times in a row.
#[test]
fn memory_request_is_answered_while_a_thousand_clients_with_short_grants_wait() {
    let (world, mut hook, mut lines) = crowd(1000);
    request_grants(&mut lines);
    world.settle();
    world.clock.step_per_reading(MS);
    world.clock.advance(MS);
    world.clock.let_read(30);
    assert!(answers_within(200, &world, &mut hook));
}

/// The manager stands still until all of them have sent.
#[test]
fn memory_request_is_answered_before_those_of_sixty_busy_processes_of_another_client() {
    const FLOODERS: usize = 60;
    const REQUESTS: usize = 32;
    let world = World::new();
    let mut flooders: Vec<Hook> = (0..FLOODERS).map(|_| world.process("be-b")).collect();
    let mut hook = world.process("be-a");
    world.settle();
    world.clock.advance_to_a_reading(MS);
    for flooder in &mut flooders {
        for _ in 0..REQUESTS {
            flooder.memory.send(RequestBody::MemLimit);
        }
    }
    hook.memory.send(RequestBody::MemLimit);
    while hook.memory.is_silent() {
        world.clock.let_read(1);
    }
    let answered: usize = flooders.iter_mut().map(|flooder| flooder.memory.answers()).sum();
    world.clock.let_go();
    assert!(answered < 200, "{answered} of {} requests were answered before", FLOODERS * REQUESTS);
}

#[test]
fn memory_request_is_read_before_earlier_requests_of_other_connections() {
    let (world, mut hook, mut lines) = crowd(500);
    world.clock.advance_to_a_reading(MS);
    request_grants(&mut lines);
    assert!(answers_within(300, &world, &mut hook));
}

fn send_attach(line: &mut Line) {
    line.send_attach(ATTACH_VERSION, Channel::Memory, 0, &[payload().as_fd()]);
}

/// All connections have sent an ATTACH that was not read yet when one more arrives, for which there is no room.
#[test]
fn memory_request_is_answered_while_room_is_sought_among_unread_attaches() {
    const CROWD: usize = 300;
    allow_descriptors();
    // No client has more connections than it may have.
    let file = (0..8).map(|client| format!("  - {{ name: client-{client}, request: 0.1, memory: 1Gi }}\n"));
    let file = format!("clients:\n{}", file.collect::<String>());
    let world = World::with(&file, |config| config.max_connections = CROWD + 2);
    let mut hook = world.process("client-0");
    let open = |name: String| Line::open(&world.socket(), &world.peers.process(), &name).unwrap();
    let mut crowd: Vec<Line> = (0..CROWD).map(|number| open(format!("client-{}", number % 8))).collect();
    world.peers.wait_until_accepted();
    world.settle();
    world.clock.rest();
    world.clock.advance_to_a_reading(MS);
    crowd.iter_mut().for_each(send_attach);
    let _late = open("client-0".to_owned());
    assert!(answers_within(150, &world, &mut hook));
}

/// Connections of one pod's processes that belong to no client yet, and the ATTACH of another pod's process behind them.
#[test]
fn attach_is_read_before_earlier_requests_of_another_pods_unattached_connections() {
    const CROWD: usize = 300;
    allow_descriptors();
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let open = |n| Line::open(&world.socket(), &world.peers.process_of(&uid(n)), "any-name").unwrap();
    let mut crowd: Vec<Line> = (0..CROWD).map(|_| open(1)).collect();
    let mut late = open(2);
    world.peers.wait_until_accepted();
    world.settle();
    world.clock.rest();
    world.clock.advance_to_a_reading(MS);
    crowd.iter_mut().for_each(send_attach);
    send_attach(&mut late);
    while late.is_silent() {
        world.clock.let_read(1);
    }
    let answered: usize = crowd.iter_mut().map(Line::answers).sum();
    world.clock.let_go();
    assert!(answered < 10, "{answered} of {CROWD} were answered before");
}
