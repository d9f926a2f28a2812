//! The kube-scheduler has seen what our watch has yet to show: what is not there any more stands in nobody's way.

use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Cluster, assigned, names, node, pod, uuid};
use super::fake_api::{Api, NODES, PODS};
use crate::extender::extender::Extender;
use crate::extender::pod_watch;

/// One GPU per node, each of them held by a pod of its node's name, and watches of pods that have come to a halt.
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
async fn a_pod_takes_the_place_of_one_that_was_being_deleted_and_is_gone_before_our_watch_says_so() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let lists = api.lists();
    api.delete(PODS, "default/a");
    assert_eq!(names(&cluster.filter(&late(), &["a", "b"]).await), ["a"]);
    // Asked about the one pod, and about nothing else.
    assert_eq!((api.gets(), api.lists()), (1, lists));
    api.put(PODS, late());
    assert_eq!(cluster.bind(&late(), "a").await, "");
    assert_eq!(assigned(&api, "late"), Some(uuid("a", 0)));
}

#[tokio::test]
async fn what_the_watch_still_has_of_a_pod_that_is_gone_does_not_take_its_place_back() {
    let (api, cluster) = full(&["a"], &["a"]).await;
    let last_words = api.get(PODS, "default/a").unwrap();
    api.delete(PODS, "default/a");
    assert_eq!(names(&cluster.filter(&late(), &["a"]).await), ["a"]);
    pod_watch::apply_pod(&cluster.extender, &serde_json::from_value(last_words).unwrap());
    assert_eq!(bound(&cluster.extender), 0);
    // Were it taken back, this bind would be of a GPU that others were given.
    api.put(PODS, late());
    api.release_watches(PODS);
    cluster.until("the end is seen", |extender| extender.state().ended_unobserved.is_empty()).await;
    assert_eq!((bound(&cluster.extender), cluster.bind(&late(), "a").await.as_str()), (0, ""));
}

#[tokio::test]
async fn a_pod_that_ended_without_notice_is_found_by_a_list_where_pods_are_few() {
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
async fn a_pod_that_is_being_deleted_keeps_its_place_as_long_as_it_is_there() {
    let (api, cluster) = full(&["a"], &["a"]).await;
    assert!(names(&cluster.filter(&late(), &["a"]).await).is_empty());
    assert_eq!((api.gets(), bound(&cluster.extender)), (1, 1));
    // Another pod of its name is not it.
    let mut again = pod("a", &[("quota", "1")]);
    again["metadata"]["uid"] = json!("another");
    api.put(PODS, again);
    assert_eq!(names(&cluster.filter(&late(), &["a"]).await), ["a"]);
}

#[tokio::test]
async fn who_waits_for_others_asks_nothing_about_those_whose_end_would_not_help() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let lists = api.lists();
    // Node a is no candidate, and two GPUs no node has.
    assert!(names(&cluster.filter(&late(), &["b"]).await).is_empty());
    assert!(names(&cluster.filter(&pod("large", &[("quota", "2")]), &["a", "b"]).await).is_empty());
    assert_eq!((api.gets(), api.lists()), (0, lists + 1));
}

#[tokio::test]
async fn a_pod_that_the_watch_has_never_shown_is_not_missed_by_a_list() {
    let (api, cluster) = full(&["a"], &[]).await;
    api.put(NODES, node("b", 1));
    cluster.until("the node is seen", |extender| extender.state().index.uses().count() == 2).await;
    let mut other = pod("other", &[("quota", "1")]);
    other["spec"]["schedulerName"] = json!("another-profile");
    api.put(PODS, other.clone());
    assert_eq!(names(&cluster.filter(&other, &["b"]).await), ["b"]);
    assert_eq!(cluster.bind(&other, "b").await, "");
    // Nor if we have asked what became of its bind.
    let found = api.get(PODS, "default/other").unwrap();
    pod_watch::apply_pod(&cluster.extender, &serde_json::from_value(found).unwrap());
    let lists = api.lists();
    assert!(names(&cluster.filter(&late(), &["a", "b"]).await).is_empty());
    assert_eq!((api.lists(), bound(&cluster.extender)), (lists + 1, 2));
}

#[tokio::test]
async fn a_thousand_pods_that_wait_ask_little() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let (lists, start) = (api.lists(), std::time::Instant::now());
    for number in 0..1000 {
        let late = pod(&format!("late-{number}"), &[("quota", "1")]);
        assert!(names(&cluster.filter(&late, &["a", "b"]).await).is_empty());
    }
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let (gets, lists) = (api.gets(), api.lists() - lists);
    assert!((1..=32 + 20 * seconds).contains(&gets) && (1..=1 + seconds).contains(&lists), "{gets} {lists}");
    // And the one that is asked about when it is gone is found all the same.
    api.delete(PODS, "default/a");
    let found = async {
        while names(&cluster.filter(&late(), &["a", "b"]).await) != ["a"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::cluster::SOON, found).await.unwrap();
}

#[tokio::test]
async fn questions_of_the_same_moment_share_an_answer() {
    let (api, cluster) = full(&["a", "b"], &["a"]).await;
    let late = |number| pod(&format!("late-{number}"), &[("quota", "1")]);
    let pods: Vec<Value> = (0..20).map(late).collect();
    let answers = futures::future::join_all(pods.iter().map(|pod| cluster.filter(pod, &["a", "b"]))).await;
    assert!(answers.iter().all(|answer| names(answer).is_empty()));
    // One for who came first, and one for all that came while it was on its way.
    assert_eq!(api.gets(), 2);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_makes_nothing_free() {
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
