//! Pending attaches: processes that attach before their pod is a client, and those of no client.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::{Hook, Line, payload};
use crate::support::peers::FakeProcess;
use crate::support::{GIB, MS, World, logs, until};
use sluice_comm::attach::{ATTACH_VERSION, AttachPayload};
use sluice_comm::{AttachStatus, Channel, HOOK_TIMEOUT, RequestBody, RequestKind, ResponseBody};
use sluice_pod_manager::ClientSource;
use sluice_sys::memfd;
use std::io::Write;
use std::os::fd::AsFd;

const HOLD: u64 = 3_000 * MS;

/// A connection of a process that has asked to attach and has no answer.
fn asking(world: &World, process: &FakeProcess, channel: Channel, used_bytes: u64) -> Line {
    let mut line = Line::open(&world.socket(), process, "any-name").unwrap();
    let payload = payload();
    line.send_attach(ATTACH_VERSION, channel, used_bytes, &[payload.as_fd()]);
    line
}

fn until_held(agent: &mut Agent, count: u32) {
    until(&format!("{count} are held"), || agent.snapshot().held == count);
}

#[test]
fn attach_before_its_pod_is_a_client_waits_and_succeeds_with_it() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    let early = world.peers.process_of(&uid(2));
    let mut memory = asking(&world, &early, Channel::Memory, 500);
    // It does not wait for the answer before it asks the next.
    memory.stream.flush().unwrap();
    memory.send(RequestBody::MemLimit);
    until_held(&mut agent, 1);
    // No other process waits for that.
    assert_eq!(world.process_of(&uid(1)).account(), (0, GIB));
    memory.pending_answers();
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    assert_eq!(memory.attach_answer().unwrap().0, AttachStatus::Ok);
    let limit = memory.receive(RequestKind::MemLimit).unwrap().body;
    assert_eq!(limit, ResponseBody::MemLimit { used: 500, limit: GIB });
    assert_eq!(agent.snapshot().held, 0);
    // It is listened to as everybody.
    assert_eq!(
        memory.ask(RequestBody::MemUpdate { bytes: 1, allocate: true }),
        ResponseBody::MemUpdate { granted: true }
    );
}

#[test]
fn attach_whose_pod_never_becomes_a_client_is_refused_with_the_reason() {
    logs::collect();
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    let mut stranger = asking(&world, &world.peers.process_of(&uid(7)), Channel::Token, 0);
    until_held(&mut agent, 1);
    world.advance(HOLD - 1);
    stranger.pending_answers();
    world.advance(1);
    assert_eq!(stranger.attach_answer().unwrap().0, AttachStatus::UnknownClient);
    assert!(stranger.is_closed());
    assert_eq!(agent.snapshot().refused, [("unknown_client".to_owned(), 1)].into());
    let words = format!("pod UID {} is no client of this GPU", uid(7));
    assert_eq!(logs::lines_with(&[&words, "within 3000 ms"]).len(), 1);
}

/// A hook without a page sees by these answers that the manager runs.
#[test]
fn pending_attach_is_reported_as_such_with_each_heartbeat() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[]);
    world.settle();
    assert_eq!(world.clock.armed(), None, "without processes the manager is not woken");
    let mut early = asking(&world, &world.peers.process_of(&uid(1)), Channel::Token, 0);
    let mut older = Line::open(&world.socket(), &world.peers.process_of(&uid(1)), "any-name").unwrap();
    let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [1; 16], contexts: Vec::new() };
    let payload = memfd::sealed("attach", &payload.encode_second()).unwrap();
    older.send_attach(ATTACH_VERSION, Channel::Token, 0, &[payload.as_fd()]);
    until_held(&mut agent, 2);
    world.clock.rest();
    early.pending_answers();
    for _ in 0..10 {
        let due = world.clock.armed().expect("a deadline");
        assert!(due - world.clock.now() <= 50 * MS);
        world.advance(due - world.clock.now());
        world.clock.rest();
        assert_eq!(early.pending_answers(), 1);
    }
    assert_eq!(older.pending_answers(), 0, "a hook of an earlier version does not know this answer");
    agent.set(&[pod(&uid(1))]);
    assert_eq!(early.attach_answer().unwrap().0, AttachStatus::Ok);
}

#[test]
fn the_refusal_comes_before_the_hook_gives_up() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    let mut stranger = asking(&world, &world.peers.process_of(&uid(8)), Channel::Token, 0);
    until_held(&mut agent, 1);
    world.advance(u64::try_from(HOOK_TIMEOUT.as_nanos()).unwrap() - MS);
    until_held(&mut agent, 0);
    assert_eq!(stranger.attach_answer().unwrap().0, AttachStatus::UnknownClient);
}

#[test]
fn new_manager_without_clients_makes_all_attaches_wait() {
    let mut world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    let mut hook = world.process_of(&uid(1));
    assert!(hook.reserve(700));
    world.stop();
    assert!(hook.token.is_closed() && hook.memory.is_closed());
    world.start();
    // The hook is faster than the agent, on both channels.
    let mut token = asking(&world, &hook.process, Channel::Token, 700);
    let mut memory = asking(&world, &hook.process, Channel::Memory, 700);
    let mut agent = Agent::connect(&world);
    until_held(&mut agent, 2);
    world.advance(HOLD / 2);
    agent.set(&[pod(&uid(1))]);
    let (status, pages) = token.attach_answer().unwrap();
    assert_eq!((status, pages.len()), (AttachStatus::Ok, 3));
    assert_eq!(memory.attach_answer().unwrap().0, AttachStatus::Ok);
    let usage = agent.usage(&uid(1)).unwrap();
    assert_eq!((usage.memory_used_bytes, usage.processes.len()), (700, 1));
    token.send(RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 0.0 });
    let granted = token.receive(RequestKind::Quota).unwrap().body;
    assert_eq!(granted, ResponseBody::Quota { quota_ms: 50.0 });
}

#[test]
fn pending_attach_is_forgotten_when_its_connection_closes() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    let held = asking(&world, &world.peers.process_of(&uid(1)), Channel::Token, 0);
    until_held(&mut agent, 1);
    drop(held);
    until_held(&mut agent, 0);
    agent.set(&[pod(&uid(1))]);
    assert!(agent.usage(&uid(1)).unwrap().processes.is_empty());
}

#[test]
fn event_reported_before_the_attach_became_pending_does_not_end_it() {
    // One more than is accepted in one round of the event loop, and room for all but that one.
    let world = World::for_agent(|config| config.max_connections = 33);
    let mut agent = Agent::connect(&world);
    agent.set(&[]);
    let mut early = Line::open(&world.socket(), &world.peers.process_of(&uid(1)), "any-name").unwrap();
    world.settle();
    let crowd: Vec<FakeProcess> = (0..33).map(|_| world.peers.process()).collect();
    // The next round begins with the last of the crowd, to make room for which the others are read; then this is reported.
    let ask = || early.send_attach(ATTACH_VERSION, Channel::Memory, 0, &[payload().as_fd()]);
    let _crowd = world.peers.connect_at_once(&crowd, &world.socket(), ask);
    until_held(&mut agent, 1);
    // What it sends meanwhile stays where it is.
    early.send(RequestBody::MemLimit);
    agent.set(&[pod(&uid(1))]);
    assert_eq!(early.attach_answer().unwrap().0, AttachStatus::Ok);
    let limit = early.receive(RequestKind::MemLimit).unwrap().body;
    assert_eq!(limit, ResponseBody::MemLimit { used: 0, limit: GIB });
    assert_eq!(agent.snapshot().refused, [("too_many".to_owned(), 1)].into());
}

#[test]
fn number_of_pending_attaches_is_limited_in_total_and_per_pod() {
    let world = World::for_agent(|config| {
        if let ClientSource::Agent(agent) = &mut config.clients {
            agent.max_pending = 66;
        }
    });
    let mut agent = Agent::connect(&world);
    let one = |n: usize| asking(&world, &world.peers.process_of(&uid(n)), Channel::Token, 0);
    let _of_one_pod: Vec<Line> = (0..64).map(|_| one(1)).collect();
    until_held(&mut agent, 64);
    let mut too_many = one(1);
    assert_eq!(too_many.attach_answer().unwrap().0, AttachStatus::UnknownClient);
    let _others: Vec<Line> = (2..4).map(one).collect();
    until_held(&mut agent, 66);
    let mut too_many = one(4);
    assert_eq!(too_many.attach_answer().unwrap().0, AttachStatus::UnknownClient);
    assert!(too_many.is_closed());
    assert_eq!(agent.snapshot().refused, [("too_many_held".to_owned(), 2)].into());
}

#[test]
fn claimed_name_is_ignored_and_process_outside_any_pod_is_refused() {
    logs::collect();
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[
        sluice_proto::control::Client { memory_bytes: 5, ..pod(&uid(1)) },
        sluice_proto::control::Client { memory_bytes: 9, ..pod(&uid(2)) },
    ]);
    let process = world.peers.process_of(&uid(1));
    let mut liar = Hook::attach(&world.socket(), &process, &format!("ml/{}", pod(&uid(2)).pod), 0).unwrap();
    assert_eq!(liar.account(), (0, 5));
    let outside = world.peers.process();
    let mut outsider = Line::open(&world.socket(), &outside, &format!("ml/{}", pod(&uid(2)).pod)).unwrap();
    assert_eq!(outsider.attach(Channel::Token, 0).unwrap().0, AttachStatus::NotAllowed);
    assert!(outsider.is_closed());
    let words = format!("process {} (\"test\") is in no pod: its cgroup is \"/user.slice\"", outside.pid);
    assert_eq!(logs::lines_with(&[&words]).len(), 1);
    // The old protocol's peers are their pod's, too, whatever name they use from frame to frame.
    let mut old = Line::open(&world.socket(), &world.peers.process_of(&uid(2)), "a").unwrap();
    assert_eq!(old.ask(RequestBody::MemLimit), ResponseBody::MemLimit { used: 0, limit: 9 });
    old.name = sluice_comm::Name::new("b").unwrap();
    assert_eq!(old.ask(RequestBody::MemLimit), ResponseBody::MemLimit { used: 0, limit: 9 });
}
