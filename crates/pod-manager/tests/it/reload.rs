//! The resource file changes under a running manager.

use crate::support::hook::Line;
use crate::support::{CLIENTS, GIB, MS, World, logs, until};
use sluice_pod_manager::ClientSource;
use std::fs;
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
    let (status, _) = again.attach(sluice_comm::Channel::Token, 0).unwrap();
    assert_eq!(status, sluice_comm::AttachStatus::UnknownClient);
    // It comes back as a new client.
    fs::write(&world.file, CLIENTS).unwrap();
    until_limit_is(&world, Some(8 * GIB));
    assert_eq!(world.process("be-a").account(), (0, 8 * GIB));
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
