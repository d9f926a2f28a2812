//! One client, or one pod, does not take the connections of all, and has room for a crowd of processes.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::Line;
use crate::support::{CLIENTS, GIB, World, allow_descriptors, logs, until};
use sluice_comm::{AttachStatus, Channel, RequestBody, ResponseBody};

#[test]
fn a_pod_leaves_an_eighth_of_the_connections_to_others_however_many_processes_it_has() {
    logs::collect();
    let world = World::for_agent(|config| config.max_connections = 64);
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let open = |n| Line::open(&world.socket(), &world.peers.process_of(&uid(n)), "any-name").unwrap();
    // Half of them say who they are.
    let mut crowd: Vec<Line> = (0..56).map(|_| open(1)).collect();
    for line in crowd.iter_mut().take(8) {
        line.attach(Channel::Memory, 0).unwrap();
    }
    for _ in 0..3 {
        assert!(open(1).finds_no_room());
    }
    assert_eq!(agent.snapshot().refused, [("too_many_of_pod".to_owned(), 3)].into());
    let words = format!("too many connections of pod UID {}", uid(1));
    assert_eq!(logs::lines_with(&[&words]).len(), 3);
    // The other pod finds room.
    assert_eq!(world.process_of(&uid(2)).account(), (0, GIB));
    // A connection that closes makes room for another of the pod.
    crowd.truncate(8);
    until("those have left", || {
        let mut next = open(1);
        matches!(next.attach(Channel::Memory, 0), Ok((AttachStatus::Ok, _)))
            && next.ask(RequestBody::MemLimit) == ResponseBody::MemLimit { used: 0, limit: GIB }
    });
}

/// What is left of 1024 descriptors, the usual limit of a shell, suffices for so many connections.
const OF_1024_DESCRIPTORS: usize = 298;

#[test]
fn client_of_a_resource_file_has_128_processes_where_descriptors_are_few() {
    allow_descriptors();
    let world = World::with(CLIENTS, |config| config.max_connections = OF_1024_DESCRIPTORS);
    let _ranks: Vec<_> = (0..128).map(|_| world.process("be-a")).collect();
    assert_eq!(world.metric("sluice_processes{client=\"be-a\"}"), Some(128.0));
    world.process("be-b");
}

#[test]
fn pod_has_128_processes_where_descriptors_are_few() {
    allow_descriptors();
    let world = World::for_agent(|config| config.max_connections = OF_1024_DESCRIPTORS);
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let _ranks: Vec<_> = (0..128).map(|_| world.process_of(&uid(1))).collect();
    assert_eq!(agent.usage(&uid(1)).unwrap().processes.len(), 128);
    world.process_of(&uid(2));
}

/// A process whose memory channel is refused would allocate without a limit.
#[test]
fn admitted_process_gets_its_memory_channel_within_the_limit_of_its_client() {
    let world = World::with(CLIENTS, |config| config.max_connections = 16);
    let mut admitted = Vec::new();
    loop {
        let process = world.peers.process();
        let mut token = Line::open(&world.socket(), &process, "be-a").unwrap();
        match token.attach(Channel::Token, 0).unwrap().0 {
            AttachStatus::Ok => admitted.push((process, token)),
            status => {
                assert_eq!(status, AttachStatus::NoRoom);
                break;
            }
        }
    }
    let memory = |(process, _): &(_, Line)| {
        let mut line = Line::open(&world.socket(), process, "be-a").unwrap();
        assert_eq!(line.attach(Channel::Memory, 0).unwrap().0, AttachStatus::Ok);
        line
    };
    let memory: Vec<Line> = admitted.iter().map(memory).collect();
    assert_eq!(admitted.len() + memory.len(), 14, "an eighth of 16 is left to others");
    world.process("be-b");
}
