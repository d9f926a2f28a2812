//! One pod does not take the connections of all.

use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::Line;
use crate::support::{GIB, World, logs, until};
use sluice_comm::{Channel, RequestBody, ResponseBody};

#[test]
fn a_pod_has_a_quarter_of_the_connections_however_many_processes_it_has() {
    logs::collect();
    let world = World::for_agent(|config| config.max_connections = 64);
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let open = |n| Line::open(&world.socket(), &world.peers.process_of(&uid(n)), "any-name").unwrap();
    // Half of them say who they are.
    let mut crowd: Vec<Line> = (0..16).map(|_| open(1)).collect();
    for line in crowd.iter_mut().take(8) {
        line.attach(Channel::Memory, 0).unwrap();
    }
    for _ in 0..3 {
        assert!(open(1).is_closed());
    }
    assert_eq!(agent.snapshot().refused, [("too_many_of_pod".to_owned(), 3)].into());
    let words = format!("too many connections of pod UID {}", uid(1));
    assert_eq!(logs::lines_with(&[&words]).len(), 3);
    // The other pod has its own quarter.
    assert_eq!(world.process_of(&uid(2)).account(), (0, GIB));
    // A connection that closes makes room for another of the pod.
    crowd.truncate(8);
    until("those have left", || {
        let mut next = open(1);
        next.attach(Channel::Memory, 0).is_ok()
            && next.ask(RequestBody::MemLimit) == ResponseBody::MemLimit { used: 0, limit: GIB }
    });
}
