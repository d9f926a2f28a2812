//! The resource file changes under a running manager.

use crate::support::agent::{Agent, pod, uid};
use crate::support::driver::{Call, Descriptor, context};
use crate::support::gemini::Gemini;
use crate::support::group_processes::{quiet, worked, works};
use crate::support::hook::{Hook, Line};
use crate::support::peers::FakeProcess;
use crate::support::{CLIENTS, GIB, MS, World, logs, until};
use sluice_comm::{AttachStatus, Channel, RequestBody};
use sluice_pod_manager::ClientSource;
use sluice_proto::control::{Class, Client};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Returns once the manager shows this memory limit for `be-a` (`None`: no such client).
fn until_limit_is(world: &World, limit: Option<u64>) {
    let series = "sluice_memory_limit_bytes{client=\"be-a\"}";
    until(&format!("the limit is {limit:?}"), || world.metric(series) == limit.map(|limit| limit as f64));
}

fn with_limit(gib: u64) -> String {
    CLIENTS.replace("8Gi", &format!("{gib}Gi"))
}

#[test]
fn writing_in_place_and_renaming_into_place_are_both_noticed() {
    let world = World::new();
    let file = world.file.clone();
    fs::write(&file, with_limit(3)).unwrap();
    until_limit_is(&world, Some(3 * GIB));
    let beside = world.directory.path().join("new");
    fs::write(&beside, with_limit(5)).unwrap();
    fs::rename(&beside, &file).unwrap();
    until_limit_is(&world, Some(5 * GIB));
}

/// What kubelet does: the file is a link through `..data`, which is a link to a directory, which is swapped.
#[test]
fn a_config_maps_symlink_swap_is_noticed() {
    fn publish(volume: &Path, version: &str, text: &str) {
        fs::create_dir(volume.join(version)).unwrap();
        fs::write(volume.join(version).join("resources"), text).unwrap();
        symlink(version, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    }
    let volume = tempfile::tempdir().unwrap();
    publish(volume.path(), "..1", &with_limit(2));
    symlink("..data/resources", volume.path().join("resources")).unwrap();
    let world = World::with(CLIENTS, |config| {
        config.clients = ClientSource::File { path: volume.path().join("resources"), swapped: false };
    });
    until_limit_is(&world, Some(2 * GIB));
    for gib in [4, 6] {
        publish(volume.path(), &format!("..{gib}"), &with_limit(gib));
        until_limit_is(&world, Some(gib * GIB));
    }
}

#[test]
fn a_lowered_limit_takes_nothing_away_and_counts_at_once() {
    let world = World::new();
    let mut a = world.process("be-a");
    assert!(a.reserve(7 * GIB));
    fs::write(&world.file, with_limit(3)).unwrap();
    until_limit_is(&world, Some(3 * GIB));
    assert_eq!(a.account(), (7 * GIB, 3 * GIB));
    assert!(!a.reserve(1));
    assert!(a.release(5 * GIB) && a.reserve(GIB) && !a.reserve(1));
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_names_them_all() {
    logs::collect();
    let world = World::new();
    let mut a = world.process("be-a");
    let wrong = CLIENTS.replace("0.3", "1.3").replace("10Gi", "ten").replace("8Gi", "9Gi");
    fs::write(&world.file, wrong).unwrap();
    until("both mistakes are logged", || {
        !logs::lines_with(&["be-a", "1.3"]).is_empty() && !logs::lines_with(&["be-b", "ten"]).is_empty()
    });
    assert_eq!(a.account(), (0, 8 * GIB));
    // A missing file does not change anything either; the next right one does.
    fs::remove_file(&world.file).unwrap();
    world.settle();
    assert_eq!(a.account(), (0, 8 * GIB));
    fs::write(&world.file, with_limit(4)).unwrap();
    until_limit_is(&world, Some(4 * GIB));
    assert_eq!(a.account(), (0, 4 * GIB));
}

#[test]
fn a_removed_client_is_closed_and_forgotten_and_the_others_go_on() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    a.want();
    a.granted();
    b.want();
    let without: String =
        CLIENTS.lines().filter(|line| !line.contains("be-a")).map(|line| format!("{line}\n")).collect();
    fs::write(&world.file, without).unwrap();
    assert!(a.token.is_closed() && a.memory.is_closed());
    assert_eq!(b.granted(), 50.0);
    assert_eq!(a.page().deadline_ns(), 0);
    until_limit_is(&world, None);
    assert!(!world.metrics().contains("be-a"), "its series are gone");
    let refused = world.metric("sluice_refused_connections_total{reason=\"client_removed\"}");
    assert_eq!(refused, Some(2.0));
    let mut again = Line::open(&world.socket(), &world.peers.process(), "be-a").unwrap();
    assert_eq!(again.attach(Channel::Token, 0).unwrap().0, AttachStatus::UnknownClient);
    // It comes back as a new client.
    fs::write(&world.file, CLIENTS).unwrap();
    until_limit_is(&world, Some(8 * GIB));
    assert_eq!(world.process("be-a").account(), (0, 8 * GIB));
}

fn attach(world: &World, process: &FakeProcess, client: &str, group: u32) -> (Hook, Descriptor) {
    let descriptor = Descriptor::new();
    let announced = (&[context(group)][..], &[descriptor.sent.as_fd()][..]);
    (Hook::attach_with(&world.socket(), process, client, 0, announced).unwrap(), descriptor)
}

/// Removes a disabled client with a tiny slice, which `remove` does, and then finds its process without a manager.
fn removed_process_is_let_go(world: &World, processes: [&FakeProcess; 3], remove: impl FnOnce()) {
    let (a, _a) = attach(world, processes[0], "be-a", 1);
    let (mut b, descriptor) = attach(world, processes[1], "be-b", 2);
    works(world, &a);
    works(world, &b);
    let (lc, _lc_descriptor) = attach(world, processes[2], "lc", 3);
    worked(world, &lc);
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 1), (false, 1)));
    world.driver.take_calls();
    remove();
    assert!(b.token.is_closed() && b.memory.is_closed());
    // Enabled with a tiny slice it would stand in the way of the first client, which has one too.
    descriptor.closes_in_time(world);
    assert_eq!(world.driver.take_calls(), [Call::Slice(2, 2048), Call::Start(2)]);
    assert_eq!(b.page().deadline_ns(), 0);
    // Its hook attaches again, is refused, and goes by what it is told to do without a manager.
    let mut again = Line::open(&world.socket(), &b.process, "be-b").unwrap();
    assert_eq!(again.attach(Channel::Token, 0).unwrap().0, AttachStatus::UnknownClient);
    // No quantum is kept for it.
    for _ in 0..4 {
        world.advance(50 * MS);
        quiet(world);
    }
    assert_eq!(world.driver.calls(), []);
    assert_eq!(world.metric("sluice_level{level=\"turn\"}"), Some(2.0));
}

#[test]
fn process_of_a_removed_client_has_its_groups_set_free_slice_first() {
    let world = World::new();
    let processes = [(); 3].map(|()| world.peers.process());
    removed_process_is_let_go(&world, processes.each_ref(), || {
        let left: Vec<&str> = CLIENTS.lines().filter(|line| !line.contains("be-b")).collect();
        fs::write(&world.file, left.join("\n")).unwrap();
    });
    let closed = "sluice_refused_connections_total{reason=\"client_removed\"}";
    assert_eq!(world.metric(closed), Some(2.0));
}

#[test]
fn process_of_a_pod_that_the_agent_removes_has_its_groups_set_free_slice_first() {
    let world = World::for_agent(|_| ());
    let mut agent = Agent::connect(&world);
    let pods = [1, 2, 3].map(|n| pod(&uid(n)));
    let critical = Client { class: Class::LatencyCritical.into(), ..pods[2].clone() };
    agent.set(&[pods[0].clone(), pods[1].clone(), critical.clone()]);
    let processes = [1, 2, 3].map(|n| world.peers.process_of(&uid(n)));
    removed_process_is_let_go(&world, processes.each_ref(), || agent.set(&[pods[0].clone(), critical]));
    assert_eq!(
        agent.snapshot().refused,
        [("client_removed".to_owned(), 2), ("unknown_client".to_owned(), 1)].into()
    );
}

#[test]
fn a_client_that_becomes_latency_critical_has_its_gate_opened() {
    let world = World::new();
    let (a, mut b) = (world.process("be-a"), world.process("be-b"));
    let mut a = a;
    a.want();
    a.granted();
    b.want();
    let critical = CLIENTS.replace("memory: 8Gi", "memory: 9Gi, class: latency-critical");
    fs::write(&world.file, critical).unwrap();
    until_limit_is(&world, Some(9 * GIB));
    world.settle();
    assert_eq!(a.page().deadline_ns(), u64::MAX);
    assert_eq!(b.granted(), 50.0);
}

/// Becomes latency-critical or best-effort again; the limit tells when it is noticed.
fn with_class(world: &World, class: &str, gib: u64) {
    let text = CLIENTS.replace("memory: 8Gi", &format!("memory: {gib}Gi, class: {class}"));
    fs::write(&world.file, text).unwrap();
    until_limit_is(world, Some(gib * GIB));
}

#[test]
fn what_was_used_before_a_change_of_class_is_not_charged_again() {
    let world = World::new();
    let seconds = || world.metric("sluice_gpu_seconds_total{client=\"be-a\"}").unwrap();
    let mut a = world.process("be-a");
    a.want();
    a.granted();
    a.report().add_busy_ns(20 * MS);
    world.advance(20 * MS);
    a.give_back(20.0);
    world.settle();
    with_class(&world, "latency-critical", 3);
    assert!((seconds() - 0.02).abs() < 1e-9, "{}", seconds());
    // What it uses under an unlimited grant is charged although no snapshot was taken before the grant ended.
    world.advance(50 * MS);
    a.report().add_busy_ns(10 * MS);
    with_class(&world, "best-effort", 4);
    assert!((seconds() - 0.03).abs() < 1e-9, "{}", seconds());
    with_class(&world, "latency-critical", 5);
    assert!((seconds() - 0.03).abs() < 1e-9, "{}", seconds());
}

#[test]
fn process_that_becomes_best_effort_reads_it_on_its_page() {
    let world = World::new();
    let (mut a, mut b) = (world.process("be-a"), world.process("be-b"));
    with_class(&world, "latency-critical", 3);
    b.want();
    b.granted();
    until("it is told", || a.page().latency_critical() && a.page().contenders() == 1);
    with_class(&world, "best-effort", 4);
    a.want();
    b.give_back(1.0);
    a.granted();
    world.settle();
    assert!(!a.page().latency_critical());
    assert_eq!(a.page().contenders(), 0, "nor is anything said of others");
}

/// Such a peer cannot return a grant.
#[test]
fn grant_of_a_gemini_peer_ends_by_its_deadline_after_two_changes_of_class() {
    let world = World::with(CLIENTS, |config| config.tcp = Some(([127, 0, 0, 1], 0).into()));
    let mut a = Gemini::connect(world.handle().tcp().unwrap(), "be-a");
    let mut b = world.process("be-b");
    a.ask(RequestBody::MemLimit);
    with_class(&world, "latency-critical", 3);
    with_class(&world, "best-effort", 4);
    a.want(0.0, 0.0);
    assert_eq!(a.granted(), 50.0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    assert_eq!(b.token.answers(), 1);
}
