//! Room of pods that wait for their victims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::cluster::{Cluster, SOON, names, node, pod, policy, uuid};
use super::super::fake_api::{Api, NODES, PODS};
use super::{URGENT, bound, cluster, only, urgent, victims};
use crate::extender::extender::Extender;
use crate::extender::objects::Pod;
use crate::extender::preempt::clear_nomination;

/// Pods `victim` on node `a` and `other` on node `b`.
async fn two_nodes() -> (Arc<Api>, Cluster) {
    let (api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    api.put(NODES, node("b", 1));
    let mut other = bound("other", 0, "0.6", 0, 1).object();
    other["spec"]["nodeName"] = json!("b");
    other["metadata"]["annotations"]["sluice.dev/assigned-gpu"] = json!(uuid("b", 0));
    api.put(PODS, other);
    cluster.until("both are bound", |extender| extender.state().index.counts() == (0, 2)).await;
    (api, cluster)
}

/// The nodes of the answer. kube-scheduler proposes these nodes, each with one pod.
async fn answered(cluster: &Cluster, pod: &Value, proposed: &[(&str, &str)]) -> Vec<String> {
    let victims = |name: &str| json!({"Pods": [{"UID": format!("{name}-uid")}], "NumPDBViolations": 0});
    let nodes: serde_json::Map<String, Value> =
        proposed.iter().map(|(node, name)| ((*node).to_owned(), victims(name))).collect();
    let (_, answer) = cluster.post("preempt", &json!({"Pod": pod, "NodeNameToMetaVictims": nodes})).await;
    answer["NodeNameToMetaVictims"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn pod_that_waits_for_its_victims_evicts_none_on_another_node() {
    let (_api, cluster) = two_nodes().await;
    let mut urgent = urgent("1");
    let proposed = [("a", "victim"), ("b", "other")];
    assert_eq!(answered(&cluster, &urgent, &proposed).await, ["a", "b"]);
    // kube-scheduler has chosen `a`, and asks again before it has seen that the victim is being deleted.
    urgent["status"]["nominatedNodeName"] = json!("a");
    assert_eq!(answered(&cluster, &urgent, &proposed).await, ["a"]);
}

#[tokio::test]
async fn pod_that_asks_again_before_its_nomination_is_known_evicts_no_others() {
    let (api, cluster) = two_nodes().await;
    let mut nominated = urgent("1");
    let proposed = [("a", "victim"), ("b", "other")];
    assert_eq!(answered(&cluster, &urgent("1"), &proposed).await, ["a", "b"]);
    assert!(answered(&cluster, &urgent("1"), &proposed).await.is_empty());
    nominated["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, nominated);
    let is_known = |extender: &Extender| extender.state().index.nominated_node("urgent-uid").is_some();
    cluster.until("the nomination is known", is_known).await;
    // kube-scheduler's copy of the pod has no nomination yet.
    assert_eq!(answered(&cluster, &urgent("1"), &proposed).await, ["a"]);
}

#[tokio::test]
async fn room_is_kept_when_kube_scheduler_clears_the_nomination_while_the_victims_are_ending() {
    let (api, cluster) = two_nodes().await;
    let cleared = urgent("1");
    assert_eq!(answered(&cluster, &cleared, &[("a", "victim")]).await, ["a"]);
    let mut nominated = cleared.clone();
    nominated["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, nominated);
    let is_known = |extender: &Extender| extender.state().index.nominated_node("urgent-uid").is_some();
    cluster.until("the nomination is known", is_known).await;
    // kube-scheduler waits only for pods that it has evicted. If a user has deleted them, it finds none to wait for.
    api.put(PODS, cleared.clone());
    cluster.until("the nomination is cleared", |extender| !is_known(extender)).await;
    assert!(answered(&cluster, &cleared, &[("b", "other")]).await.is_empty(), "no second set of victims");
    api.delete(PODS, "default/victim");
    cluster.until("the victim has ended", |extender| extender.state().index.counts() == (0, 1)).await;
    let lower = pod("lower", &[("quota", "0.4"), ("memory", "1Gi")]);
    assert!(names(&cluster.filter(&lower, &["a"]).await).is_empty(), "its room is kept");
    assert_eq!(names(&cluster.filter(&cleared, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn pod_evicts_elsewhere_only_when_its_nominated_node_stays_away() {
    let (_api, cluster) = two_nodes().await;
    let mut urgent = urgent("1");
    assert_eq!(answered(&cluster, &urgent, &[("a", "victim"), ("b", "other")]).await, ["a", "b"]);
    urgent["status"]["nominatedNodeName"] = json!("a");
    // kube-scheduler does not propose the node while its agent restarts.
    assert!(answered(&cluster, &urgent, &[("b", "other")]).await.is_empty());
    tokio::time::pause();
    tokio::time::advance(policy().reservation).await;
    tokio::time::resume();
    // The node is dead: the victim there never ends.
    assert_eq!(answered(&cluster, &urgent, &[("b", "other")]).await, ["b"]);
}

#[tokio::test]
async fn nomination_stays_while_the_room_is_free_on_a_node_that_is_away() {
    let (api, cluster) = two_nodes().await;
    let mut urgent = urgent("1");
    answered(&cluster, &urgent, &[("a", "victim")]).await;
    urgent["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, urgent.clone());
    api.delete(PODS, "default/victim");
    cluster.until("the victim has ended", |extender| extender.state().index.counts() == (0, 1)).await;
    // The node is away, and no eviction is allowed on the other one.
    assert!(answered(&cluster, &urgent, &[("b", "other")]).await.is_empty());
    let mut lost = pod("lost", &[("quota", "1"), ("memory", "1Gi")]);
    lost["status"]["nominatedNodeName"] = json!("b");
    api.put(PODS, lost.clone());
    assert!(answered(&cluster, &lost, &[("b", "other")]).await.is_empty());
    let nominated = |name: &str| {
        api.get(PODS, &format!("default/{name}")).unwrap()["status"]["nominatedNodeName"].is_string()
    };
    let mut changes = cluster.extender.changes();
    let cleared = async {
        while nominated("lost") {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(SOON, cleared).await.unwrap();
    assert!(nominated("urgent"));
    let lower = pod("lower", &[("quota", "0.4"), ("memory", "1Gi")]);
    assert!(names(&cluster.filter(&lower, &["a"]).await).is_empty(), "its room is kept");
}

#[tokio::test]
async fn room_of_the_victims_is_bound_to_the_pod_that_evicted_them() {
    let (api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    let mut urgent = urgent("1");
    api.put(PODS, urgent.clone());
    assert_eq!(victims(&cluster, &urgent, &["victim"]).await, only(&["victim"]));
    let lower = pod("lower", &[("quota", "0.4"), ("memory", "1Gi")]);
    api.put(PODS, lower.clone());
    assert!(names(&cluster.filter(&lower, &["a"]).await).is_empty(), "before the nomination");
    urgent["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, urgent.clone());
    // A change that the watch shows after it.
    api.delete(PODS, "default/victim");
    cluster.until("the victim has ended", |extender| extender.state().index.counts() == (0, 0)).await;
    assert!(names(&cluster.filter(&lower, &["a"]).await).is_empty(), "after the end of the victim");
    assert_eq!(names(&cluster.filter(&urgent, &["a"]).await), ["a"]);
    assert_eq!(cluster.bind(&urgent, "a").await, "");
    api.delete(PODS, "default/urgent");
    cluster.until("it has ended", |extender| extender.state().index.counts() == (0, 0)).await;
    assert_eq!(names(&cluster.filter(&lower, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn nominated_pod_that_waits_for_its_victims_is_not_told_to_evict_others() {
    let (api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    let mut urgent = urgent("1");
    victims(&cluster, &urgent, &["victim"]).await;
    let refusals = |answer: &Value| {
        let of = |key: &str| answer[key].as_object().map_or(0, serde_json::Map::len);
        (of("FailedNodes"), of("FailedAndUnresolvableNodes"))
    };
    assert_eq!(refusals(&cluster.filter(&urgent, &["a"]).await), (0, 1));
    urgent["status"]["nominatedNodeName"] = json!("a");
    assert_eq!(refusals(&cluster.filter(&urgent, &["a"]).await), (1, 0));
    // Another pod has the room: waiting does not help.
    api.put(PODS, bound("higher", 0, "0.1", URGENT + 1, 5).object());
    api.delete(PODS, "default/victim");
    cluster
        .until("the victim has ended", |extender| extender.state().occupants.keys().eq(["higher-uid"]))
        .await;
    assert_eq!(refusals(&cluster.filter(&urgent, &["a"]).await), (0, 1));
}

#[tokio::test]
async fn nomination_is_cleared_when_a_higher_pod_has_the_room_and_no_eviction_helps() {
    let (api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    let mut urgent = urgent("1");
    assert_eq!(victims(&cluster, &urgent, &["victim"]).await, only(&["victim"]));
    urgent["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, urgent.clone());
    api.put(PODS, bound("higher", 0, "0.1", URGENT + 1, 5).object());
    api.put(PODS, bound("lower", 0, "0.1", 0, 5).object());
    api.delete(PODS, "default/victim");
    cluster.until("the victim has ended", |extender| extender.state().index.counts() == (0, 2)).await;
    let waits = pod("waits", &[("quota", "0.5"), ("memory", "1Gi")]);
    assert!(names(&cluster.filter(&waits, &["a"]).await).is_empty());
    assert_eq!(victims(&cluster, &urgent, &["lower"]).await, None);
    let is_nominated =
        |api: &Api| api.get(PODS, "default/urgent").unwrap()["status"]["nominatedNodeName"].is_string();
    let mut changes = cluster.extender.changes();
    let cleared = async {
        while is_nominated(&api) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(SOON, cleared).await.unwrap();
    api.put(PODS, bound("mark", 0, "0.1", 0, 1).object());
    cluster.until("the watch shows it", |extender| extender.state().index.counts() == (0, 3)).await;
    assert_eq!(names(&cluster.filter(&waits, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn restarted_extender_keeps_the_room_of_nominated_pods() {
    let mut victim = bound("victim", 0, "0.6", 0, 1).object();
    let (api, before) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    victim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    api.put(PODS, victim);
    let mut urgent = urgent("1");
    urgent["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, urgent.clone());
    before.kill().await;
    let after = Cluster::leading(api.serve().await).await;
    let lower = pod("lower", &[("quota", "0.4"), ("memory", "1Gi")]);
    assert!(names(&after.filter(&lower, &["a"]).await).is_empty());
    api.delete(PODS, "default/victim");
    after.until("the victim has ended", |extender| extender.state().index.counts() == (0, 0)).await;
    assert!(names(&after.filter(&lower, &["a"]).await).is_empty());
    urgent["status"] = json!({"phase": "Pending"});
    api.put(PODS, urgent);
    api.put(PODS, bound("mark", 0, "0.1", 0, 1).object());
    after.until("the nomination has ended", |extender| extender.state().index.counts() == (0, 1)).await;
    assert_eq!(names(&after.filter(&lower, &["a"]).await), ["a"]);
}

#[tokio::test]
async fn nominated_pod_keeps_its_nomination_while_the_extender_is_not_active() {
    let (_api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    let mut urgent = urgent("1");
    cluster.extender.leadership.set_leading(false);
    // kube-scheduler clears the nomination of a pod whose filter call ends in an error.
    assert!(cluster.filter(&urgent, &["a"]).await["Error"].as_str().unwrap().contains("standby"));
    urgent["status"]["nominatedNodeName"] = json!("a");
    let answer = cluster.filter(&urgent, &["a"]).await;
    assert!(answer["FailedNodes"]["a"].as_str().unwrap().contains("standby"), "{answer}");
    assert_eq!((&answer["Error"], names(&answer).len()), (&Value::Null, 0));
}

#[tokio::test]
async fn later_nomination_is_not_cleared() {
    let (api, cluster) = cluster(1, &[]).await;
    let nominated = |node: &str, uid: &str| {
        let mut pod = urgent("1");
        pod["metadata"]["uid"] = json!(uid);
        pod["status"]["nominatedNodeName"] = json!(node);
        pod
    };
    let read: Pod = serde_json::from_value(nominated("a", "urgent-uid")).unwrap();
    for now in [nominated("b", "urgent-uid"), nominated("a", "another-uid")] {
        api.put(PODS, now.clone());
        clear_nomination(cluster.extender.client.clone(), read.clone()).await;
        let after = api.get(PODS, "default/urgent").unwrap();
        assert_eq!(after["status"]["nominatedNodeName"], now["status"]["nominatedNodeName"]);
    }
    api.put(PODS, nominated("a", "urgent-uid"));
    clear_nomination(cluster.extender.client.clone(), read).await;
    assert!(api.get(PODS, "default/urgent").unwrap()["status"]["nominatedNodeName"].is_null());
}

#[tokio::test]
async fn nominated_pod_that_is_being_deleted_keeps_no_room() {
    let (api, cluster) = cluster(1, &[bound("stays", 0, "0.6", 0, 1)]).await;
    let mut urgent = urgent("0.4");
    urgent["status"]["nominatedNodeName"] = json!("a");
    api.put(PODS, urgent.clone());
    api.put(PODS, bound("mark", 0, "0", 0, 1).object());
    cluster.until("the watch shows both", |extender| extender.state().index.counts() == (0, 2)).await;
    let lower = pod("lower", &[("quota", "0.4"), ("memory", "1Gi")]);
    assert!(names(&cluster.filter(&lower, &["a"]).await).is_empty());
    urgent["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    api.put(PODS, urgent);
    api.delete(PODS, "default/mark");
    cluster.until("the watch shows both", |extender| extender.state().index.counts() == (0, 1)).await;
    assert_eq!(names(&cluster.filter(&lower, &["a"]).await), ["a"]);
}
