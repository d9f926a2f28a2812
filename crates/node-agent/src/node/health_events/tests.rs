//! Tests of `health_events.rs`.

use super::*;
use crate::gpus::fake;
use crate::managers::ManagerStatuses;
use crate::pods::{Assignments, PodView, Pods};
use std::sync::Arc;

fn node(health: &[(&str, bool)]) -> NodeInventory {
    let gpu = |(uuid, healthy): &(&str, bool)| Gpu {
        uuid: (*uuid).to_owned(),
        healthy: *healthy,
        unhealthy_reason: (!healthy).then(|| "Xid 79".to_owned()),
        ..fake::gpu(0)
    };
    NodeInventory::new(1, health.iter().map(gpu).collect())
}

fn seen(before: &[(&str, bool)], now: &[(&str, bool)]) -> Vec<(String, Reason)> {
    health_changes(&node(before), &node(now)).into_iter().map(|change| (change.gpu, change.reason)).collect()
}

#[test]
fn each_change_of_health_is_published_once_with_its_reason() {
    assert_eq!(
        seen(&[("a", true), ("b", true)], &[("a", false), ("b", true)]),
        [("a".into(), Reason::GpuUnhealthy)]
    );
    assert_eq!(seen(&[("a", false)], &[("a", false)]), []);
    assert_eq!(seen(&[("a", false)], &[("a", true)]), [("a".into(), Reason::GpuRecovered)]);
    assert!(health_changes(&node(&[]), &node(&[("a", false)]))[0].note.contains("Xid 79"));
}

#[test]
fn healthy_gpu_at_the_start_is_no_change_and_removed_gpu_is() {
    assert_eq!(seen(&[], &[("a", true)]), []);
    assert_eq!(seen(&[("a", true)], &[]), [("a".into(), Reason::GpuUnhealthy)]);
}

#[tokio::test]
async fn limiting_self_test_outcome_is_published_once() {
    let statuses = ManagerStatuses::default();
    let (events, mut published) = EventQueue::new();
    tokio::spawn(publish_self_tests("n".into(), statuses.watch(), events));
    let set = |outcome: Outcome| statuses.update("GPU-a", |status| status.self_test = outcome);
    set(Outcome::InUse { processes: 1 });
    tokio::task::yield_now().await;
    set(Outcome::NoEffect { why: "nothing comes of it".into() });
    let event = published.recv().await.unwrap();
    assert_eq!(event.reason, Reason::GpuSelfTest);
    assert!(event.note.contains("GPU-a") && event.note.contains("by token"), "{}", event.note);
    statuses.update("GPU-a", |status| status.restarts += 1);
    tokio::task::yield_now().await;
    set(Outcome::Failed { why: "no libcuda".into() });
    assert!(published.recv().await.unwrap().note.contains("no libcuda"), "the first was told once");
}

#[tokio::test]
async fn pods_on_a_gpu_unhealthy_at_the_start_get_an_event_once_known() {
    let pod = PodView { uid: "u".into(), name: "p".into(), ..PodView::default() };
    let pods = Arc::new(Pods::from([("u".to_owned(), Arc::new(pod))]));
    let (_gpus, gpus_seen) = watch::channel(node(&[("a", false)]));
    let (assignments, assignments_seen) = watch::channel(None);
    let (_pods, pods_seen) = watch::channel(Some(pods));
    let (events, mut published) = EventQueue::new();
    tokio::spawn(publish_health_changes("n".into(), gpus_seen, assignments_seen, pods_seen, events));
    tokio::task::yield_now().await;
    let gpus = [("u".to_owned(), vec!["a".to_owned()])].into();
    assignments.send_replace(Some(Arc::new(Assignments { gpus, ..Assignments::default() })));
    let kinds =
        [published.recv().await.unwrap(), published.recv().await.unwrap()].map(|event| event.about.kind);
    assert_eq!(kinds, [Some("Node".into()), Some("Pod".into())]);
}
