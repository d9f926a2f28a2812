//! The control API: the node agent sets the clients and reads a snapshot.

use crate::support::agent::{Agent, control_socket, pod, uid};
use crate::support::hook::{Hook, Line};
use crate::support::peers::container;
use crate::support::{GIB, MS, World, until};
use sluice_comm::{AttachStatus, Channel};
use sluice_proto::control::{Class, Client};
use std::os::unix::fs::PermissionsExt;
use tonic::Code;

const CLASSES: [Class; 4] = [Class::BestEffort, Class::Normal, Class::High, Class::LatencyCritical];

fn world() -> (World, Agent) {
    let world = World::for_agent(|_| {});
    let agent = Agent::connect(&world);
    (world, agent)
}

#[test]
fn the_control_socket_is_its_users_alone_and_goes_with_the_manager() {
    let (mut world, mut agent) = world();
    let socket = control_socket(&world);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let first = agent.snapshot();
    assert_eq!((first.gpu_uuid.as_str(), first.generation, first.clients.len()), ("GPU-test", 0, 0));
    world.stop();
    assert!(!socket.exists() && !world.socket().exists());
    let left: Vec<_> = std::fs::read_dir(world.directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

// Both ends of every connection are in this process, which may have 1024 descriptors: a hundred pods are tests/cluster's.
#[test]
fn fifty_pods_at_once_get_exactly_their_limits() {
    let (world, mut agent) = world();
    let pods: Vec<Client> = (1..=50)
        .map(|n| {
            let at = u32::try_from(n).unwrap();
            let class = CLASSES[n % CLASSES.len()];
            Client {
                overcommit: class != Class::LatencyCritical,
                quota_ppm: 100 * at,
                limit_ppm: 1_000_000 - at,
                memory_bytes: GIB + u64::from(at),
                slo_ns: u64::from(at) * MS,
                gang: format!("gang-{n}"),
                class: class.into(),
                ..pod(&uid(n))
            }
        })
        .collect();
    agent.set(&pods);
    let mut hooks: Vec<Hook> = pods.iter().map(|pod| world.process_of(&pod.pod_uid)).collect();
    for (hook, pod) in hooks.iter_mut().zip(&pods) {
        assert_eq!(hook.account(), (0, pod.memory_bytes), "{}", pod.pod);
        assert!(hook.reserve(pod.memory_bytes) && !hook.reserve(1), "{}", pod.pod);
    }
    let snapshot = agent.snapshot();
    assert_eq!((snapshot.generation, snapshot.agent_instance.as_str()), (1, "agent-1"));
    for pod in &pods {
        let usage = agent.usage(&pod.pod_uid).unwrap();
        assert_eq!(usage.client.as_ref(), Some(pod));
        let memory = (usage.memory_used_bytes, usage.memory_peak_bytes, usage.memory_denied);
        assert_eq!(memory, (pod.memory_bytes, pod.memory_bytes, 1));
        let processes: Vec<_> = usage.processes.iter().map(|process| process.container_id.clone()).collect();
        assert_eq!(processes, [container(&pod.pod_uid)]);
    }
}

#[test]
fn change_applies_to_running_processes_and_leaves_the_others_undisturbed() {
    let (world, mut agent) = world();
    let (a, b) = (pod(&uid(1)), pod(&uid(2)));
    agent.set(&[a.clone(), b.clone()]);
    let (mut first, mut second) = (world.process_of(&uid(1)), world.process_of(&uid(2)));
    second.want();
    assert_eq!(second.granted(), 50.0);
    let (epoch, deadline) = (second.page().epoch(), second.page().deadline_ns());
    assert!(first.reserve(GIB) && second.reserve(7));
    let critical = Client { memory_bytes: 2 * GIB, class: Class::LatencyCritical.into(), ..a };
    agent.set(&[critical, b]);
    assert!(first.reserve(GIB) && !first.reserve(1));
    world.settle();
    assert_eq!(first.page().deadline_ns(), u64::MAX, "it holds an unlimited grant now");
    assert_eq!((second.page().epoch(), second.page().deadline_ns()), (epoch, deadline));
    assert_eq!(second.account(), (7, GIB));
}

#[test]
fn high_and_normal_clients_wait_for_grants_and_are_reported_with_their_class() {
    let (world, mut agent) = world();
    let high = Client { class: Class::High.into(), ..pod(&uid(1)) };
    let normal = Client { class: Class::Normal.into(), ..pod(&uid(2)) };
    agent.set(&[high.clone(), normal.clone()]);
    for client in [&high, &normal] {
        assert_eq!(agent.usage(&client.pod_uid).unwrap().client.as_ref(), Some(client));
    }
    let (mut first, mut second) = (world.process_of(&uid(1)), world.process_of(&uid(2)));
    first.want();
    assert_eq!(first.granted(), 50.0);
    second.want();
    world.settle();
    assert_eq!(second.page().deadline_ns(), 0, "the other client holds the token");
    assert!(!first.page().latency_critical() && !second.page().latency_critical());
    first.give_back(50.0);
    assert_eq!(second.granted(), 50.0);
}

#[test]
fn change_to_another_class_that_waits_for_grants_leaves_the_grant_as_it_is() {
    let (world, mut agent) = world();
    agent.set(&[pod(&uid(1))]);
    let mut hook = world.process_of(&uid(1));
    hook.want();
    assert_eq!(hook.granted(), 50.0);
    let before = (hook.page().epoch(), hook.page().deadline_ns());
    for class in [Class::High, Class::Normal, Class::BestEffort] {
        agent.set(&[Client { class: class.into(), ..pod(&uid(1)) }]);
        world.settle();
        assert_eq!((hook.page().epoch(), hook.page().deadline_ns()), before, "{class:?}");
    }
}

#[test]
fn a_removed_pods_processes_lose_everything_but_their_memory_is_remembered() {
    let (world, mut agent) = world();
    let (a, b) = (pod(&uid(1)), pod(&uid(2)));
    agent.set(&[a.clone(), b.clone()]);
    let (mut gone, mut stays) = (world.process_of(&uid(1)), world.process_of(&uid(2)));
    gone.want();
    gone.granted();
    assert!(gone.reserve(1000));
    stays.want();
    agent.set(std::slice::from_ref(&b));
    assert!(gone.token.is_closed() && gone.memory.is_closed());
    assert_eq!(gone.page().deadline_ns(), 0);
    assert_eq!(stays.granted(), 50.0, "its grant has ended, so the next client has the token");
    // It is refused from now on, without waiting for a pod that is known to have gone.
    let mut again = Line::open(&world.socket(), &gone.process, "any-name").unwrap();
    assert_eq!(again.attach(Channel::Token, 0).unwrap().0, AttachStatus::UnknownClient);
    let left = agent.usage(&uid(1)).unwrap();
    assert!(left.left_out);
    assert_eq!((left.memory_used_bytes, left.processes.len()), (1000, 1));
    assert_eq!(
        left.client,
        Some(Client { namespace: a.namespace, pod: a.pod, pod_uid: uid(1), ..Client::default() })
    );
    assert!(!world.metrics().contains(&uid(1)), "its series are gone");
    gone.process.die();
    until("the process's end is noticed", || agent.usage(&uid(1)).is_none());
}

#[test]
fn a_pod_that_is_named_again_gets_its_running_process_back() {
    let (world, mut agent) = world();
    agent.set(&[pod(&uid(1))]);
    let mut hook = world.process_of(&uid(1));
    assert!(hook.reserve(1000));
    agent.set(&[]);
    assert!(hook.token.is_closed());
    agent.set(&[pod(&uid(1))]);
    let mut again = Hook::attach(&world.socket(), &hook.process, "any-name", 1000).unwrap();
    assert_eq!(again.account(), (1000, GIB));
    let all = agent.snapshot().clients;
    assert_eq!((all.len(), all[0].left_out, all[0].memory_used_bytes), (1, false, 1000));
}

#[test]
fn pod_of_the_same_name_with_another_uid_is_another_client() {
    let (world, mut agent) = world();
    let old = Client { pod: "web".into(), ..pod(&uid(1)) };
    let new = Client { pod: "web".into(), ..pod(&uid(2)) };
    agent.set(&[old]);
    let mut before = world.process_of(&uid(1));
    before.want();
    before.granted();
    assert!(before.reserve(1000));
    world.advance(20 * MS);
    before.give_back(20.0);
    until("its time is charged", || agent.usage(&uid(1)).unwrap().gpu_time_ns == 20 * MS);
    agent.set(&[new]);
    let mut after = world.process_of(&uid(2));
    assert_eq!(after.account(), (0, GIB));
    let usage = agent.usage(&uid(2)).unwrap();
    assert_eq!((usage.gpu_time_ns, usage.grants, usage.memory_peak_bytes), (0, 0, 0));
    let text = world.metrics();
    let series: Vec<&str> = text.lines().filter(|line| line.starts_with("sluice_grants_total")).collect();
    assert_eq!(
        series,
        [format!("sluice_grants_total{{namespace=\"ml\",pod=\"web\",pod_uid=\"{}\"}} 0", uid(2))]
    );
}

#[test]
fn the_longest_names_there_are_work() {
    let (world, mut agent) = world();
    let long = Client { namespace: "n".repeat(63), pod: "p".repeat(253), ..pod(&uid(1)) };
    agent.set(std::slice::from_ref(&long));
    assert_eq!(world.process_of(&uid(1)).account(), (0, GIB));
    assert_eq!(agent.usage(&uid(1)).unwrap().client, Some(long));
}

#[test]
fn sets_with_mistakes_and_old_ones_are_refused_whole() {
    let (world, mut agent) = world();
    agent.set(&[pod(&uid(1))]);
    let bad = [Client { memory_bytes: GIB / 2, ..pod(&uid(1)) }, Client { limit_ppm: 0, ..pod(&uid(2)) }];
    let refused = agent.try_set(2, &bad).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("limit_ppm is 0"), "{refused}");
    let too_much = [1, 2, 3, 4].map(|n| pod(&uid(n)));
    let refused = agent.try_set(2, &too_much).unwrap_err();
    assert!(refused.message().contains("1200000, more than one GPU"), "{refused}");
    assert_eq!(agent.snapshot().generation, 1);
    let mut hook = world.process_of(&uid(1));
    assert_eq!(hook.account(), (0, GIB), "the old set is in force");
    assert_eq!(agent.try_set(5, &[pod(&uid(1))]).unwrap(), 5);
    let refused = agent.try_set(4, &[]).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("generation 4 is older than 5"), "{refused}");
    assert_eq!(agent.try_set(5, &[pod(&uid(1))]).unwrap(), 5, "the same one again is no older one");
    // Another agent counts anew.
    agent.instance = "agent-2".into();
    assert_eq!(agent.try_set(1, &[pod(&uid(1)), pod(&uid(2))]).unwrap(), 1);
    assert_eq!(hook.account(), (0, GIB), "none of that disturbed it");
    assert_eq!(agent.snapshot().agent_instance, "agent-2");
}

#[test]
fn a_snapshot_counts_what_happened() {
    let (world, mut agent) = world();
    agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    let (mut a, mut b) = (world.process_of(&uid(1)), world.process_of(&uid(2)));
    a.want();
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(30 * MS);
    a.report().count_bypass(2);
    a.report().count_bypass(2);
    a.give_back(25.0);
    assert_eq!(b.granted(), 50.0);
    assert!(a.reserve(300) && a.release(200) && !a.reserve(GIB));
    let usage = agent.usage(&uid(1)).unwrap();
    assert_eq!((usage.gpu_time_ns, usage.grants, usage.wait_ns), (25 * MS, 1, 0));
    assert_eq!(usage.hold_and_wait_ns, 5 * MS, "the other one waited all the time");
    assert_eq!((usage.memory_used_bytes, usage.memory_peak_bytes, usage.memory_denied), (100, 300, 1));
    assert_eq!(usage.bypassed, [("manager_gone".to_owned(), 2)].into());
    assert_eq!((usage.processes[0].pid, usage.processes[0].memory_used_bytes), (a.process.pid, 100));
    let other = agent.usage(&uid(2)).unwrap();
    assert_eq!((other.grants, other.wait_ns, other.gpu_time_ns), (1, 30 * MS, 0));
    assert!(usage.share_ppm > 0 && usage.share_ppm <= 1_000_000, "{}", usage.share_ppm);
    // What an ended process reported is not forgotten.
    a.process.die();
    until("its end is noticed", || agent.usage(&uid(1)).unwrap().processes.is_empty());
    let usage = agent.usage(&uid(1)).unwrap();
    assert_eq!(usage.bypassed, [("manager_gone".to_owned(), 2)].into());
    assert_eq!((usage.memory_used_bytes, usage.memory_peak_bytes), (0, 300));
}
