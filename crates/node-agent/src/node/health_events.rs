//! Events about the health of GPUs: one on the node, one on each pod that has the GPU.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_placement::inventory::{Gpu, NodeInventory};
use tokio::sync::watch;

use super::events::{EventQueue, Reason, about_node, about_pod};
use crate::managers::{ClientSetsWatch, ManagerStatus};
use crate::pods::{Assignments, Pods, PodsWatch};
use crate::self_test::Outcome;

/// Publishes every change of health until the inventory ends. A GPU that is unhealthy from the start is published too.
pub async fn publish_health_changes(
    node: String,
    mut inventory: watch::Receiver<NodeInventory>,
    assignments: watch::Receiver<Arc<Assignments>>,
    mut sets: ClientSetsWatch,
    pods: PodsWatch,
    events: EventQueue,
) {
    // Until then it is unknown which pods are on a GPU that is unhealthy from the start.
    if sets.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut before = NodeInventory::new(0, Vec::new());
    loop {
        let now = inventory.borrow_and_update().clone();
        for change in health_changes(&before, &now) {
            events.publish(about_node(&node), change.reason, change.note.clone());
            let assignments = Arc::clone(&assignments.borrow());
            let known: Arc<Pods> = pods.borrow().clone().unwrap_or_default();
            let on_it = assignments.gpus.iter().filter(|(_, gpus)| gpus.contains(&change.gpu));
            for pod in on_it.filter_map(|(uid, _)| known.get(uid)) {
                events.publish(about_pod(pod), change.reason, change.note.clone());
            }
        }
        before = now;
        if inventory.changed().await.is_err() {
            return;
        }
    }
}

/// Publishes every self-test outcome that limits the scheduling, until the managers' statuses end.
pub async fn publish_self_tests(
    node: String,
    mut managers: watch::Receiver<BTreeMap<String, ManagerStatus>>,
    events: EventQueue,
) {
    let mut before: BTreeMap<String, Outcome> = BTreeMap::new();
    loop {
        let now: BTreeMap<String, Outcome> = managers
            .borrow_and_update()
            .iter()
            .map(|(gpu, status)| (gpu.clone(), status.self_test.clone()))
            .collect();
        for (gpu, outcome) in now.iter().filter(|(gpu, outcome)| before.get(*gpu) != Some(*outcome)) {
            if let Some(warning) = outcome.warning() {
                events.publish(about_node(&node), Reason::GpuSelfTest, format!("{gpu}: {warning}"));
            }
        }
        before = now;
        if managers.changed().await.is_err() {
            return;
        }
    }
}

/// A GPU whose health changed.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    gpu: String,
    reason: Reason,
    note: String,
}

fn health_changes(before: &NodeInventory, now: &NodeInventory) -> Vec<Change> {
    let mut changes = Vec::new();
    for gpu in &now.gpus {
        let was_healthy = before.gpu(&gpu.uuid).is_none_or(|gpu| gpu.healthy);
        match (was_healthy, gpu.healthy) {
            (true, false) => {
                changes.push(unhealthy(gpu, gpu.unhealthy_reason.as_deref().unwrap_or("no reason known")))
            }
            (false, true) => changes.push(Change {
                gpu: gpu.uuid.clone(),
                reason: Reason::GpuRecovered,
                note: format!("{} ({}) works again", gpu.uuid, gpu.model),
            }),
            (true, true) | (false, false) => {}
        }
    }
    let gone = before.gpus.iter().filter(|gpu| now.gpu(&gpu.uuid).is_none());
    changes.extend(gone.map(|gpu| unhealthy(gpu, "it is no longer there")));
    changes
}

fn unhealthy(gpu: &Gpu, why: &str) -> Change {
    Change {
        gpu: gpu.uuid.clone(),
        reason: Reason::GpuUnhealthy,
        note: format!("{} ({}) is not healthy: {why}; it gets no new pods", gpu.uuid, gpu.model),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::ManagerStatuses;
    use crate::pods::PodView;

    fn node(health: &[(&str, bool)]) -> NodeInventory {
        let gpu = |(uuid, healthy): &(&str, bool)| Gpu {
            uuid: (*uuid).to_owned(),
            index: 0,
            model: "X".into(),
            memory_bytes: 1,
            numa: None,
            pci: String::new(),
            nvlink: Vec::new(),
            healthy: *healthy,
            unhealthy_reason: (!healthy).then(|| "Xid 79".to_owned()),
        };
        NodeInventory::new(1, health.iter().map(gpu).collect())
    }

    fn seen(before: &[(&str, bool)], now: &[(&str, bool)]) -> Vec<(String, Reason)> {
        health_changes(&node(before), &node(now))
            .into_iter()
            .map(|change| (change.gpu, change.reason))
            .collect()
    }

    #[test]
    fn each_change_of_health_is_told_once_with_its_reason() {
        assert_eq!(
            seen(&[("a", true), ("b", true)], &[("a", false), ("b", true)]),
            [("a".into(), Reason::GpuUnhealthy)]
        );
        assert_eq!(seen(&[("a", false)], &[("a", false)]), []);
        assert_eq!(seen(&[("a", false)], &[("a", true)]), [("a".into(), Reason::GpuRecovered)]);
        assert!(health_changes(&node(&[]), &node(&[("a", false)]))[0].note.contains("Xid 79"));
    }

    #[test]
    fn a_gpu_that_is_healthy_from_the_beginning_is_no_news_and_one_that_left_is() {
        assert_eq!(seen(&[], &[("a", true)]), []);
        assert_eq!(seen(&[("a", true)], &[]), [("a".into(), Reason::GpuUnhealthy)]);
    }

    #[tokio::test]
    async fn a_self_test_that_came_to_nothing_is_told_once_with_what_follows_from_it() {
        let board = ManagerStatuses::default();
        let (events, mut told) = EventQueue::new();
        tokio::spawn(publish_self_tests("n".into(), board.watch(), events));
        let set = |outcome: Outcome| board.update("GPU-a", |status| status.self_test = outcome);
        set(Outcome::InUse { processes: 1 });
        tokio::task::yield_now().await;
        set(Outcome::NoEffect { why: "nothing comes of it".into() });
        let notice = told.recv().await.unwrap();
        assert_eq!(notice.reason, Reason::GpuSelfTest);
        assert!(notice.note.contains("GPU-a") && notice.note.contains("by token"), "{}", notice.note);
        board.update("GPU-a", |status| status.restarts += 1);
        tokio::task::yield_now().await;
        set(Outcome::Failed { why: "no libcuda".into() });
        assert!(told.recv().await.unwrap().note.contains("no libcuda"), "the first was told once");
    }

    #[tokio::test]
    async fn pods_on_a_gpu_that_is_ill_from_the_beginning_are_told_once_they_are_known() {
        let pod = PodView { uid: "u".into(), name: "p".into(), ..PodView::default() };
        let pods = Arc::new(Pods::from([("u".to_owned(), Arc::new(pod))]));
        let (_gpus, gpus_seen) = watch::channel(node(&[("a", false)]));
        let (assignments, assignments_seen) = watch::channel(Arc::new(Assignments::default()));
        let (sets, sets_seen) = watch::channel(None);
        let (_pods, pods_seen) = watch::channel(Some(pods));
        let (events, mut told) = EventQueue::new();
        tokio::spawn(publish_health_changes(
            "n".into(),
            gpus_seen,
            assignments_seen,
            sets_seen,
            pods_seen,
            events,
        ));
        tokio::task::yield_now().await;
        let gpus = [("u".to_owned(), vec!["a".to_owned()])].into();
        assignments.send_replace(Arc::new(Assignments { gpus, ..Assignments::default() }));
        sets.send_replace(Some(Arc::default()));
        let kinds = [told.recv().await.unwrap(), told.recv().await.unwrap()].map(|notice| notice.about.kind);
        assert_eq!(kinds, [Some("Node".into()), Some("Pod".into())]);
    }
}
