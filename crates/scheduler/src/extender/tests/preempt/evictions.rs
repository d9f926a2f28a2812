//! Evictions by the extender, where the sums of the nodes have room and no GPU has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::cluster::{Cluster, SOON, names, node, policy, uuid};
use super::super::fake_api::{Api, Fault, NODES, PODS};
use super::{Bound, URGENT, bound, cluster, cluster_with, urgent, victims};
use crate::extender::extender::Policy;

/// Two GPUs with 0.4 free on each, and a pod that asks for 0.5.
async fn fragmented(pods: [Bound; 2]) -> (Arc<Api>, Cluster, Value) {
    let (api, cluster) = cluster(2, &pods).await;
    let wants = urgent("0.5");
    api.put(PODS, wants.clone());
    (api, cluster, wants)
}

/// Waits until the API server has deleted this many pods for a client, and returns them by name.
async fn evicted(api: &Api, cluster: &Cluster, count: usize) -> Vec<String> {
    let mut changes = cluster.extender.changes();
    let wait = async {
        while api.evicted().len() < count {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap();
    api.evicted().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn second_refusal_evicts_the_pod_that_makes_room_on_one_gpu() {
    let (api, cluster, mut wants) =
        fragmented([bound("higher", 0, "0.6", 10, 1), bound("lower", 1, "0.6", 0, 1)]).await;
    for _ in 0..2 {
        assert!(names(&cluster.filter(&wants, &["a"]).await).is_empty());
    }
    assert_eq!(evicted(&api, &cluster, 1).await, ["lower"]);
    let condition = &api.evicted()[0]["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("PreemptionByScheduler"))
    );
    wants["status"]["nominatedNodeName"] = json!("a");
    assert_eq!(api.get(PODS, "default/urgent").unwrap()["status"]["nominatedNodeName"], "a");
    cluster.until("the victim has ended", |extender| extender.state().index.counts() == (0, 1)).await;
    let mut late = urgent("0.4");
    late["metadata"] = json!({"name": "late", "namespace": "default", "uid": "late-uid",
        "annotations": {"sluice.dev/quota": "0.6", "sluice.dev/memory": "1Gi"}});
    assert!(names(&cluster.filter(&late, &["a"]).await).is_empty(), "its room is kept");
    assert_eq!(names(&cluster.filter(&wants, &["a"]).await), ["a"]);
    assert_eq!(cluster.bind(&wants, "a").await, "");
    assert_eq!(api.evicted().len(), 1);
}

#[tokio::test]
async fn node_with_the_cheapest_evictions_is_chosen() {
    let (api, cluster, wants) =
        fragmented([bound("higher", 0, "0.6", 10, 1), bound("high", 1, "0.6", 5, 1)]).await;
    api.put(NODES, node("b", 1));
    let mut lowest = bound("lowest", 0, "0.6", 0, 1).object();
    lowest["spec"]["nodeName"] = json!("b");
    lowest["metadata"]["annotations"]["sluice.dev/assigned-gpu"] = json!(uuid("b", 0));
    api.put(PODS, lowest);
    cluster.until("all are bound", |extender| extender.state().index.counts() == (0, 3)).await;
    for _ in 0..2 {
        cluster.filter(&wants, &["a", "b"]).await;
    }
    assert_eq!(evicted(&api, &cluster, 1).await, ["lowest"]);
}

#[tokio::test]
async fn pod_for_which_kube_scheduler_finds_victims_is_not_helped_twice() {
    let (api, cluster, wants) =
        fragmented([bound("one", 0, "0.6", 0, 1), bound("other", 1, "0.6", 0, 1)]).await;
    cluster.filter(&wants, &["a"]).await;
    assert!(victims(&cluster, &wants, &["one"]).await.is_some());
    for _ in 0..3 {
        cluster.filter(&wants, &["a"]).await;
    }
    // Another pod is helped later, so the first one would have been by now.
    let mut second = urgent("0.6");
    second["metadata"]["name"] = json!("second");
    second["metadata"]["uid"] = json!("second-uid");
    second["spec"]["priority"] = json!(URGENT + 1);
    api.put(PODS, second.clone());
    for _ in 0..2 {
        cluster.filter(&second, &["a"]).await;
    }
    assert_eq!(evicted(&api, &cluster, 1).await.len(), 1);
    let first = api.get(PODS, "default/urgent").unwrap();
    assert!(first["status"]["nominatedNodeName"].is_null(), "the extender nominates no second node");
}

#[tokio::test]
async fn pods_stay_that_the_class_of_the_refused_pod_must_not_evict() {
    let (api, cluster, mut wants) =
        fragmented([bound("equal", 0, "0.6", URGENT, 1), bound("lower", 1, "0.6", 0, 1)]).await;
    wants["spec"]["preemptionPolicy"] = json!("Never");
    for _ in 0..3 {
        cluster.filter(&wants, &["a"]).await;
    }
    let mut other = urgent("0.5");
    other["metadata"]["name"] = json!("other");
    other["metadata"]["uid"] = json!("other-uid");
    api.put(PODS, other.clone());
    for _ in 0..2 {
        cluster.filter(&other, &["a"]).await;
    }
    assert_eq!(evicted(&api, &cluster, 1).await, ["lower"]);
    assert_eq!(api.get(PODS, "default/other").unwrap()["status"]["nominatedNodeName"], "a");
    assert!(api.get(PODS, "default/urgent").unwrap()["status"]["nominatedNodeName"].is_null());
}

#[tokio::test]
async fn eviction_that_the_api_server_refuses_for_the_moment_is_repeated() {
    for code in [429, 503] {
        let (api, cluster) =
            cluster(1, &[bound("one", 0, "0.5", 0, 1), bound("other", 0, "0.5", 0, 2)]).await;
        let wants = urgent("1");
        api.put(PODS, wants.clone());
        let mut deletions = 0;
        *api.delete_fault.lock().unwrap() = Box::new(move || {
            deletions += 1;
            if deletions == 2 { Fault::Refuse(code) } else { Fault::None }
        });
        for _ in 0..2 {
            cluster.filter(&wants, &["a"]).await;
        }
        let mut gone = evicted(&api, &cluster, 2).await;
        gone.sort();
        assert_eq!(gone, ["one", "other"]);
        cluster.until("both have ended", |extender| extender.state().index.counts() == (0, 0)).await;
        assert_eq!(names(&cluster.filter(&wants, &["a"]).await), ["a"]);
    }
}

#[tokio::test]
async fn pod_that_has_the_name_of_a_victim_which_has_ended_stays() {
    for (ended, remaining) in [("one", "other"), ("other", "one")] {
        let (api, cluster) =
            cluster(1, &[bound("one", 0, "0.5", 0, 1), bound("other", 0, "0.5", 0, 2)]).await;
        let wants = urgent("1");
        api.put(PODS, wants.clone());
        cluster.filter(&wants, &["a"]).await;
        api.hold_watches(PODS);
        let mut again = api.get(PODS, &format!("default/{ended}")).unwrap();
        again["metadata"]["uid"] = json!("another-uid");
        api.put(PODS, again);
        cluster.filter(&wants, &["a"]).await;
        cluster.poll("the other victim is evicted", |_| !api.evicted().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(evicted(&api, &cluster, 1).await, [remaining]);
    }
}

/// A pod for which a victim on node `a` was chosen, and whose nomination the API server has not carried out yet. The extender
/// waits for an answer for `bind_timeout`; [`SOON`] is as long as the test lasts.
async fn nominating(bind_timeout: Duration) -> (Arc<Api>, Cluster, Value) {
    let (api, cluster) =
        cluster_with(Policy { bind_timeout, ..policy() }, 1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    let wants = urgent("0.5");
    api.put(PODS, wants.clone());
    api.patches.close();
    for _ in 0..2 {
        cluster.filter(&wants, &["a"]).await;
    }
    cluster.poll("the pod is being nominated", |_| api.patches() == 1).await;
    (api, cluster, wants)
}

/// Carries out the nomination, and waits until the extender would have evicted the victim.
async fn carry_out(api: &Api, cluster: &Cluster) {
    api.patches.open();
    let nominated = || api.get(PODS, "default/urgent").unwrap()["status"]["nominatedNodeName"] == "a";
    cluster.poll("the pod is nominated", |_| nominated()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[tokio::test]
async fn pod_that_was_bound_elsewhere_meanwhile_evicts_none() {
    let (api, cluster, wants) = nominating(SOON).await;
    api.put(NODES, node("b", 1));
    cluster.until("the node is seen", |extender| extender.state().index.uses().count() == 2).await;
    assert_eq!(names(&cluster.filter(&wants, &["b"]).await), ["b"]);
    assert_eq!(cluster.bind(&wants, "b").await, "");
    carry_out(&api, &cluster).await;
    assert!(api.evicted().is_empty(), "{:?}", api.evicted());
}

#[tokio::test]
async fn pod_that_another_scheduler_has_bound_evicts_none_before_the_watch_shows_the_bind() {
    let (api, cluster, mut wants) = nominating(SOON).await;
    api.hold_watches(PODS);
    wants["spec"]["nodeName"] = json!("b");
    api.put(PODS, wants);
    carry_out(&api, &cluster).await;
    assert!(api.evicted().is_empty(), "{:?}", api.evicted());
}

#[tokio::test]
async fn extender_that_does_not_lead_any_more_evicts_none() {
    let (api, cluster, _wants) = nominating(SOON).await;
    cluster.extender.leadership.set_leading(false);
    carry_out(&api, &cluster).await;
    assert!(api.evicted().is_empty(), "{:?}", api.evicted());
}

#[tokio::test]
async fn nomination_without_an_answer_in_time_evicts_none() {
    let (api, _cluster, _wants) = nominating(policy().bind_timeout).await;
    tokio::time::sleep(2 * policy().bind_timeout).await;
    api.patches.open();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(api.evicted().is_empty(), "{:?}", api.evicted());
}
