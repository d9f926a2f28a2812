//! The kube-scheduler has seen the end of pods that the extender's watch has not shown yet: ended pods block no other
//! pod.

use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Cluster, assigned, names, node, pod, uuid};
use super::fake_api::{Api, NODES, PODS};
use crate::extender::extender::Extender;
use crate::extender::pod_watch::{self, Pods};
use crate::extender::watch_loop::Sink;

/// One GPU per node, each held by a pod of the node's name, and a watch of pods that delivers nothing more.
async fn full(nodes: &[&str], ending: &[&str]) -> (Arc<Api>, Cluster) {
    let api = Api::new();
    for name in nodes {
        api.put(NODES, node(name, 1));
    }
    let cluster = Cluster::leading(api.serve().await).await;
    for name in nodes {
        let holder = pod(name, &[("quota", "1")]);
        api.put(PODS, holder.clone());
        cluster.filter(&holder, &[name]).await;
        assert_eq!(cluster.bind(&holder, name).await, "");
    }
    cluster.until("the binds are seen", |extender| extender.state().unobserved_binds.is_empty()).await;
    for name in ending {
        let mut pod = api.get(PODS, &format!("default/{name}")).unwrap();
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        api.put(PODS, pod);
    }
    let ending = ending.len();
    cluster.until("their end is near", |extender| extender.state().deleting.len() == ending).await;
    api.hold_watches(PODS);
    (api, cluster)
}

fn late() -> Value {
    pod("late", &[("quota", "1")])
}

fn bound(extender: &Extender) -> usize {
    extender.state().index.counts().1
}

#[tokio::test]
async fn pod_replaces_a_deleted_one_before_the_watch_shows_the_deletion() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let lists = api.lists();
    api.delete(PODS, "default/a");
    assert_eq!(names(&cluster.filter(&late(), &["a", "b"]).await), ["a"]);
    // One request for the one pod, and no other request.
    assert_eq!((api.gets(), api.lists()), (1, lists));
    api.put(PODS, late());
    assert_eq!(cluster.bind(&late(), "a").await, "");
    assert_eq!(assigned(&api, "late"), Some(uuid("a", 0)));
}

#[tokio::test]
async fn stale_event_of_a_gone_pod_does_not_restore_its_share() {
    let (api, cluster) = full(&["a"], &["a"]).await;
    let last_words = api.get(PODS, "default/a").unwrap();
    api.delete(PODS, "default/a");
    assert_eq!(names(&cluster.filter(&late(), &["a"]).await), ["a"]);
    Pods::new(&cluster.extender).apply(&serde_json::from_value(last_words).unwrap());
    assert_eq!(bound(&cluster.extender), 0);
    // If it were restored, this bind would be of a GPU that another pod has.
    api.put(PODS, late());
    api.release_watches(PODS);
    cluster.until("the end is seen", |extender| extender.state().ended_unobserved.is_empty()).await;
    assert_eq!((bound(&cluster.extender), cluster.bind(&late(), "a").await.as_str()), (0, ""));
}

#[tokio::test]
async fn list_finds_a_pod_that_ended_without_notice() {
    for end in ["deleted", "completed"] {
        let (api, cluster) = full(&["a", "b"], &[]).await;
        if end == "deleted" {
            api.delete(PODS, "default/b");
        } else {
            let mut pod = api.get(PODS, "default/b").unwrap();
            pod["status"]["phase"] = json!("Succeeded");
            api.put(PODS, pod);
        }
        let lists = api.lists();
        assert_eq!(names(&cluster.filter(&late(), &["a", "b"]).await), ["b"], "{end}");
        assert_eq!((api.lists(), bound(&cluster.extender)), (lists + 1, 1), "{end}");
        api.release_watches(PODS);
        cluster.until("the end is seen", |extender| extender.state().unobserved_binds.is_empty()).await;
    }
}

#[tokio::test]
async fn pod_being_deleted_keeps_its_share_while_it_exists() {
    let (api, cluster) = full(&["a"], &["a"]).await;
    assert!(names(&cluster.filter(&late(), &["a"]).await).is_empty());
    assert_eq!((api.gets(), bound(&cluster.extender)), (1, 1));
    // Another pod of the same name is not the same pod.
    let mut again = pod("a", &[("quota", "1")]);
    again["metadata"]["uid"] = json!("another");
    api.put(PODS, again);
    assert_eq!(names(&cluster.filter(&late(), &["a"]).await), ["a"]);
}

#[tokio::test]
async fn no_request_for_pods_whose_end_would_not_help() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let lists = api.lists();
    // Node a is no candidate, and no node has two GPUs.
    assert!(names(&cluster.filter(&late(), &["b"]).await).is_empty());
    assert!(names(&cluster.filter(&pod("large", &[("quota", "2")]), &["a", "b"]).await).is_empty());
    assert_eq!((api.gets(), api.lists()), (0, lists + 1));
}

#[tokio::test]
async fn pod_unknown_to_the_watch_is_not_released_by_a_list() {
    let (api, cluster) = full(&["a"], &[]).await;
    api.put(NODES, node("b", 1));
    cluster.until("the node is seen", |extender| extender.state().index.uses().count() == 2).await;
    let mut other = pod("other", &[("quota", "1")]);
    other["spec"]["schedulerName"] = json!("another-profile");
    api.put(PODS, other.clone());
    assert_eq!(names(&cluster.filter(&other, &["b"]).await), ["b"]);
    assert_eq!(cluster.bind(&other, "b").await, "");
    // The same holds after the result of its bind was requested.
    let found = api.get(PODS, "default/other").unwrap();
    pod_watch::apply_pod(&cluster.extender, &serde_json::from_value(found).unwrap());
    let lists = api.lists();
    assert!(names(&cluster.filter(&late(), &["a", "b"]).await).is_empty());
    assert_eq!((api.lists(), bound(&cluster.extender)), (lists + 1, 2));
}

#[tokio::test]
async fn thousand_waiting_pods_cause_few_requests() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let (lists, start) = (api.lists(), std::time::Instant::now());
    for number in 0..1000 {
        let late = pod(&format!("late-{number}"), &[("quota", "1")]);
        assert!(names(&cluster.filter(&late, &["a", "b"]).await).is_empty());
    }
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let (gets, lists) = (api.gets(), api.lists() - lists);
    assert!((1..=32 + 20 * seconds).contains(&gets) && (1..=1 + seconds).contains(&lists), "{gets} {lists}");
    // A pod that is gone is still found.
    api.delete(PODS, "default/a");
    let found = async {
        while names(&cluster.filter(&late(), &["a", "b"]).await) != ["a"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::cluster::SOON, found).await.unwrap();
}

#[tokio::test]
async fn concurrent_filter_calls_share_a_recheck() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let late = |number| pod(&format!("late-{number}"), &[("quota", "1")]);
    let pods: Vec<Value> = (0..20).map(late).collect();
    let answers = futures::future::join_all(pods.iter().map(|pod| cluster.filter(pod, &["a", "b"]))).await;
    assert!(answers.iter().all(|answer| names(answer).is_empty()));
    // One request for the first call, and one for all calls that came while it was under way.
    assert_eq!(api.gets(), 2);
}

#[tokio::test]
async fn silent_api_server_releases_nothing() {
    let (api, cluster) = full(&["a"], &["a"]).await;
    api.delete(PODS, "default/a");
    api.silent.store(true, std::sync::atomic::Ordering::Relaxed);
    tokio::time::pause();
    assert!(names(&cluster.filter(&late(), &["a"]).await).is_empty());
    tokio::time::resume();
    api.silent.store(false, std::sync::atomic::Ordering::Relaxed);
    api.release_watches(PODS);
    cluster.until("the end is seen", |extender| bound(extender) == 0).await;
    assert_eq!(names(&cluster.filter(&late(), &["a"]).await), ["a"]);
}
