//! Reservations of scheduling attempts that fail after filter: at Reserve, at Permit, or before the bind. kube-scheduler tells an extender
//! nothing then. It writes the pod's condition `PodScheduled`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Cluster, names, node, pod};
use super::fake_api::{Api, NODES, PODS};
use crate::extender::extender::Extender;

/// A node with one GPU, and a pod that takes most of it.
async fn cluster() -> (Arc<Api>, Cluster, Value) {
    let api = Api::new();
    api.put(NODES, node("a", 1));
    let cluster = Cluster::leading(api.serve().await).await;
    let one = pod("one", &[("quota", "0.6")]);
    api.put(PODS, one.clone());
    (api, cluster, one)
}

/// The pod after a failed attempt with this message.
fn failed(pod: &Value, message: &str) -> Value {
    let mut failed = pod.clone();
    failed["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    failed
}

fn labelled(pod: &Value, label: &str) -> Value {
    let mut labelled = pod.clone();
    labelled["metadata"]["labels"] = json!({"step": label});
    labelled
}

/// Puts a pod with no other meaning than that the watch has delivered everything before it.
async fn watch_is_up_to_date(api: &Api, cluster: &Cluster) {
    let mut marker = pod("marker", &[("quota", "0.001"), ("assigned-gpu", "GPU-elsewhere")]);
    marker["spec"]["nodeName"] = json!("elsewhere");
    api.put(PODS, marker);
    let is_known = |extender: &Extender| !extender.state().index.reservations("marker-uid").is_empty();
    cluster.until("the marker is known", is_known).await;
    api.delete(PODS, "default/marker");
    cluster.until("the marker is gone", |extender| !is_known(extender)).await;
}

fn reserved(cluster: &Cluster) -> usize {
    cluster.extender.state().index.counts().0
}

#[tokio::test]
async fn failed_attempt_releases_its_reservation() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    assert!(names(&cluster.filter(&pod("two", &[("quota", "0.6")]), &["a"]).await).is_empty());
    // Another member of its gang does not arrive in time.
    api.put(
        PODS,
        failed(&one, "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Gang."),
    );
    cluster.until("the room is free", |extender| extender.state().index.counts().0 == 0).await;
    assert_eq!(names(&cluster.filter(&pod("two", &[("quota", "0.6")]), &["a"]).await), ["a"]);
}

#[tokio::test]
async fn failure_of_an_earlier_attempt_leaves_the_reservation() {
    let (api, cluster, one) = cluster().await;
    let earlier = failed(&one, "0/1 nodes are available: 1 node(s) had no room.");
    api.put(PODS, earlier.clone());
    // kube-scheduler asks with the failed condition of the earlier attempt. The watch is behind.
    let asked = api.get(PODS, "default/one").unwrap();
    assert_eq!(names(&cluster.filter(&asked, &["a"]).await), ["a"]);
    watch_is_up_to_date(&api, &cluster).await;
    assert_eq!(reserved(&cluster), 1);
    // A change of something else repeats the condition.
    api.put(PODS, labelled(&earlier, "waits at Permit"));
    watch_is_up_to_date(&api, &cluster).await;
    assert_eq!(reserved(&cluster), 1);
    api.put(PODS, failed(&one, "0/1 nodes are available: 1 rejected by plugin Gang."));
    cluster.until("the room is free", |extender| extender.state().index.counts().0 == 0).await;
}

#[tokio::test]
async fn condition_that_is_older_than_the_attempt_leaves_the_reservation() {
    let (api, cluster, one) = cluster().await;
    api.hold_watches(PODS);
    api.put(PODS, failed(&one, "0/1 nodes are available: a has 0.200 free, 0.600 asked."));
    api.put(PODS, failed(&one, "0/1 nodes are available: a has 0.400 free, 0.600 asked."));
    let asked = api.get(PODS, "default/one").unwrap();
    assert_eq!(names(&cluster.filter(&asked, &["a"]).await), ["a"]);
    api.release_watches(PODS);
    watch_is_up_to_date(&api, &cluster).await;
    assert_eq!(reserved(&cluster), 1);
}

#[tokio::test]
async fn failed_attempt_leaves_a_bind_that_is_being_sent() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    *api.fault.lock().unwrap() = Box::new(|| super::fake_api::Fault::Refuse(504));
    assert_ne!(cluster.bind(&one, "a").await, "");
    // kube-scheduler gives up, but the API server may still carry out the bind.
    api.put(PODS, failed(&one, "the API server did not answer"));
    watch_is_up_to_date(&api, &cluster).await;
    assert_eq!(reserved(&cluster), 1);
}

async fn wait_at_permit(cluster: &Cluster) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    cluster.extender.expire();
}

#[tokio::test]
async fn expired_reservation_is_made_again_at_the_bind_if_there_is_room() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    wait_at_permit(&cluster).await;
    assert_eq!(reserved(&cluster), 0);
    assert_eq!(cluster.bind(&one, "a").await, "");
    assert_eq!(super::cluster::assigned(&api, "one").as_deref(), Some("GPU-a-0"));
}

/// As kube-scheduler nominates a pod that will wait at Permit (`NominatedNodeNameForExpectation`, on from 1.35).
#[tokio::test]
async fn room_of_a_nominated_pod_at_permit_is_kept_until_its_bind() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    let mut nominated = one.clone();
    nominated["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, nominated);
    let is_known = |extender: &Extender| extender.state().index.nominated_node("one-uid").is_some();
    cluster.until("the nomination is known", is_known).await;
    wait_at_permit(&cluster).await;
    assert_eq!(reserved(&cluster), 0);
    assert!(names(&cluster.filter(&pod("two", &[("quota", "0.6")]), &["a"]).await).is_empty());
    assert_eq!(cluster.bind(&one, "a").await, "");
}

#[tokio::test]
async fn bind_after_the_reservation_is_refused_if_another_pod_has_the_room() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    wait_at_permit(&cluster).await;
    assert_eq!(names(&cluster.filter(&pod("two", &[("quota", "0.6")]), &["a"]).await), ["a"]);
    assert_ne!(cluster.bind(&one, "a").await, "");
    assert_eq!((reserved(&cluster), api.binds()), (1, 0));
    // Nor on a node that filter did not offer.
    api.put(NODES, node("b", 1));
    cluster.until("b is known", |extender| extender.state().index.uses().count() == 2).await;
    assert_ne!(cluster.bind(&one, "b").await, "");
}

#[tokio::test]
async fn attempts_are_forgotten_with_their_pods() {
    let (api, cluster, one) = cluster().await;
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    assert_eq!(cluster.extender.state().attempts.len(), 1);
    api.delete(PODS, "default/one");
    cluster.until("the attempt is forgotten", |extender| extender.state().attempts.is_empty()).await;
    api.put(PODS, one.clone());
    assert_eq!(names(&cluster.filter(&one, &["a"]).await), ["a"]);
    assert_eq!(cluster.bind(&one, "a").await, "");
    assert!(cluster.extender.state().attempts.is_empty());
}
