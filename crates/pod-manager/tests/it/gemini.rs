//! Peers that speak only Gemini's protocol, over TCP, on a clock that the test moves.

use crate::support::gemini::Gemini;
use crate::support::{MS, World};
use sluice_comm::{RequestBody, ResponseBody};
use sluice_pod_manager::Config;
use std::io::Write;
use std::time::Duration;

const CLIENTS: &str = "3\nclient1 0.3 1.0 1073741824\nclient2 0.7 1.0 2147483648\nhalf 0.0 0.5 1024\n";

fn world() -> World {
    World::with(CLIENTS, |config: &mut Config| config.tcp = Some(([127, 0, 0, 1], 0).into()))
}

fn connect(world: &World, client: &str) -> Gemini {
    Gemini::connect(world.handle().tcp().unwrap(), client)
}

#[test]
fn two_peers_get_thirty_and_seventy_percent_of_a_gpu_that_they_use_exactly() {
    let world = world();
    let mut peers = [connect(&world, "client1"), connect(&world, "client2")];
    for peer in &mut peers {
        peer.want(0.0, 0.0);
    }
    world.settle();
    let mut used = [0.0; 2];
    while used.iter().sum::<f64>() < 20_000.0 {
        let running: Vec<usize> = (0..2)
            .filter(|index| match peers[*index].granted_by_now() {
                Some(quota_ms) => {
                    used[*index] += quota_ms;
                    world
                        .clock
                        .advance(Duration::from_secs_f64(quota_ms / 1e3).as_nanos().try_into().unwrap());
                    true
                }
                None => false,
            })
            .collect();
        for index in running {
            peers[index].want(0.0, 0.0);
        }
        world.settle();
        // A grant may come a moment later, when the linger time of another client has passed.
        world.advance(0);
    }
    let share = used[0] / (used[0] + used[1]);
    assert!((share - 0.3).abs() <= 0.01, "{share}");
    let shown = world.metric("sluice_share{client=\"client2\"}").unwrap();
    assert!((shown - 0.7).abs() <= 0.02, "{shown}");
}

#[test]
fn a_grant_ends_by_timer_and_the_next_peer_runs() {
    let world = world();
    let (mut first, mut second) = (connect(&world, "client1"), connect(&world, "client2"));
    first.want(0.0, 0.0);
    assert_eq!(first.granted(), 50.0);
    second.want(0.0, 0.0);
    world.advance(49 * MS);
    assert_eq!(second.granted_by_now(), None);
    world.advance(MS);
    assert_eq!(second.granted(), 50.0);
    // It overran by 4 ms, and says so when it asks next.
    world.advance(10 * MS);
    first.want(4.0, 0.0);
    world.settle();
    assert_eq!(world.metric("sluice_token_held_seconds_total{client=\"client1\"}"), Some(0.05));
}

#[test]
fn a_peer_is_answered_from_its_running_grant_while_its_burst_fits() {
    let world = world();
    let mut peer = connect(&world, "client1");
    peer.want(0.0, 0.0);
    assert_eq!(peer.granted(), 50.0);
    world.advance(20 * MS);
    peer.want(0.0, 30.0);
    assert_eq!(peer.granted(), 30.0);
    peer.want(0.0, 31.0);
    assert_eq!(peer.granted(), 40.5);
}

#[test]
fn memory_is_accounted_per_connection() {
    let world = world();
    let mut peer = connect(&world, "client1");
    let limit = 1 << 30;
    assert_eq!(peer.ask(RequestBody::MemLimit), ResponseBody::MemLimit { used: 0, limit });
    let take = RequestBody::MemUpdate { bytes: limit, allocate: true };
    assert_eq!(peer.ask(take), ResponseBody::MemUpdate { granted: true });
    let mut second = connect(&world, "client1");
    let byte = RequestBody::MemUpdate { bytes: 1, allocate: true };
    assert_eq!(second.ask(byte), ResponseBody::MemUpdate { granted: false });
    assert_eq!(second.ask(RequestBody::MemLimit), ResponseBody::MemLimit { used: limit, limit });
    drop(peer);
    world.settle();
    assert_eq!(second.ask(byte), ResponseBody::MemUpdate { granted: true });
}

#[test]
fn unknown_name_gets_no_answer_and_keeps_its_connection() {
    let world = world();
    let mut stranger = connect(&world, "stranger");
    let mut known = connect(&world, "client1");
    stranger.send(RequestBody::MemLimit);
    known.ask(RequestBody::MemLimit);
    assert_eq!(stranger.granted_by_now(), None);
    assert_eq!(world.metric("sluice_refused_connections_total{reason=\"unknown_client\"}"), Some(0.0));
}

#[test]
fn the_extended_protocol_and_garbage_are_not_spoken_over_tcp() {
    let world = world();
    for (body, reason) in
        [(RequestBody::Detach, "out_of_order"), (RequestBody::OwnProcess { pid: 1 }, "out_of_order")]
    {
        let mut peer = connect(&world, "client1");
        peer.send(body);
        assert!(peer.is_closed());
        assert!(
            world.metric(&format!("sluice_refused_connections_total{{reason=\"{reason}\"}}")) > Some(0.0)
        );
    }
    let mut peer = connect(&world, "client1");
    peer.stream.write_all(&[0xff; 80]).unwrap();
    assert!(peer.is_closed());
    assert_eq!(world.metric("sluice_refused_connections_total{reason=\"bad_frame\"}"), Some(1.0));
}

#[test]
fn a_frame_may_come_in_pieces_and_two_may_come_at_once() {
    let world = world();
    let mut peer = connect(&world, "client1");
    let frames: Vec<u8> = (0..2).flat_map(|_| peer.frame(RequestBody::MemLimit)).collect();
    peer.stream.write_all(&frames[..30]).unwrap();
    world.settle();
    peer.stream.write_all(&frames[30..]).unwrap();
    for id in 1..=2 {
        assert_eq!(peer.receive(sluice_comm::RequestKind::MemLimit).id, id);
    }
}

#[test]
fn a_connection_speaks_for_one_client() {
    let world = world();
    let mut peer = connect(&world, "client1");
    peer.ask(RequestBody::MemLimit);
    peer.rename("stranger");
    peer.send(RequestBody::MemLimit);
    world.settle();
    assert_eq!(peer.granted_by_now(), None);
    peer.rename("client2");
    peer.send(RequestBody::MemLimit);
    assert!(peer.is_closed());
}

#[test]
fn geminis_own_values_can_be_configured() {
    let world = World::with(CLIENTS, |config| {
        config.tcp = Some(([127, 0, 0, 1], 0).into());
        config.base_quota = Duration::from_millis(250);
        config.min_quota = Duration::from_millis(100);
        config.max_quota = config.window;
        config.limit_period = config.window;
    });
    let mut peer = connect(&world, "client1");
    let mut quotas = Vec::new();
    for burst in [0.0, 50.0, 50.0, 50.0] {
        peer.want(0.0, burst);
        quotas.push(peer.granted());
        world.advance(300 * MS);
    }
    assert_eq!(quotas, [250.0, 150.0, 100.0, 100.0]);
    peer.want(0.0, 1e6);
    assert_eq!(peer.granted(), 10_000.0);
}

/// Such a peer takes a closed connection for an answer and would run without a grant.
#[test]
fn peer_beyond_the_limit_of_its_client_gets_no_answer_until_another_has_left() {
    let world = World::with(CLIENTS, |config| {
        config.tcp = Some(([127, 0, 0, 1], 0).into());
        config.max_connections = 4;
    });
    let mut served: Vec<Gemini> = (0..2).map(|_| connect(&world, "client1")).collect();
    for peer in &mut served {
        peer.ask(RequestBody::MemLimit);
    }
    let mut waiting = connect(&world, "client1");
    waiting.want(0.0, 0.0);
    world.settle();
    assert_eq!(waiting.granted_by_now(), None, "it waits, and its connection is open");
    served.pop();
    world.settle();
    waiting.want(0.0, 0.0);
    assert_eq!(waiting.granted(), 50.0);
}
