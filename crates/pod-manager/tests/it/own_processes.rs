//! Whether a process that NVML lists is of the asking client.

use crate::support::World;
use crate::support::agent::{Agent, pod, uid};
use crate::support::hook::Hook;
use crate::support::peers::FakeProcess;
use sluice_comm::{RequestBody, ResponseBody};

fn attached(world: &World, pod: usize, number_in_container: i32) -> (FakeProcess, Hook) {
    let process = world.peers.process_of(&uid(pod));
    process.number_in_container(number_in_container);
    let hook = Hook::attach(&world.socket(), &process, "any-name", 0).unwrap();
    (process, hook)
}

fn owns(hook: &mut Hook, pid: i32) -> bool {
    match hook.memory.ask(RequestBody::OwnProcess { pid: pid.cast_unsigned() }) {
        ResponseBody::OwnProcess { own } => own,
        other => panic!("{other:?}"),
    }
}

#[test]
fn processes_of_the_same_pod_are_own_by_their_number_in_the_container_and_on_the_host() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let (first, mut hook) = attached(&world, 1, 11);
    let (sibling, _second) = attached(&world, 1, 12);
    let (other, _third) = attached(&world, 2, 13);
    for pid in [11, 12, first.pid, sibling.pid] {
        assert!(owns(&mut hook, pid), "{pid}");
    }
    for pid in [13, 14, other.pid, 0, -1] {
        assert!(!owns(&mut hook, pid), "{pid}");
    }
}

#[test]
fn number_in_a_container_is_not_of_a_process_on_the_host() {
    let world = World::for_agent(|_| {});
    let mut agent = Agent::connect(&world);
    agent.set(&[pod(&uid(1))]);
    let (_inner, _hook) = attached(&world, 1, 11);
    // This process of the pod is in the host's pid namespace: 11 is a process of the host there.
    let host = world.peers.process_of(&uid(1));
    let mut hook = Hook::attach(&world.socket(), &host, "any-name", 0).unwrap();
    assert!(owns(&mut hook, host.pid));
    assert!(!owns(&mut hook, 11));
}
