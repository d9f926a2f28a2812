//! Preemption as a kube-scheduler and an API server see it.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_placement::Demand;
use sluice_placement::annotations::Amount;

mod evictions;
mod nominations;
mod proposals;

use super::cluster::{Cluster, node, pod, policy, uuid};
use super::fake_api::{Api, BUDGETS, NODES, PODS};
use crate::extender::extender::Policy;

/// The priority of pods that evict others.
const URGENT: i32 = 1000;

/// A bound pod on a GPU of node `a`.
struct Bound {
    name: &'static str,
    gpu: u32,
    quota: &'static str,
    priority: i32,
    /// Minute of its start.
    started: u32,
    requests: Value,
}

const fn bound(name: &'static str, gpu: u32, quota: &'static str, priority: i32, started: u32) -> Bound {
    Bound { name, gpu, quota, priority, started, requests: Value::Null }
}

impl Bound {
    fn object(&self) -> Value {
        let gpu = uuid("a", self.gpu);
        let mut object = pod(self.name, &[("quota", self.quota), ("memory", "1Gi"), ("assigned-gpu", &gpu)]);
        object["spec"]["nodeName"] = json!("a");
        object["spec"]["priority"] = json!(self.priority);
        object["metadata"]["labels"] = json!({"name": self.name});
        object["status"] =
            json!({"phase": "Running", "startTime": format!("2026-01-01T00:{:02}:00Z", self.started)});
        if self.requests.is_object() {
            object["spec"]["containers"][0]["resources"]["requests"] = self.requests.clone();
        }
        object
    }
}

/// A cluster with a node `a` of this many GPUs and these pods.
async fn cluster(gpus: u32, pods: &[Bound]) -> (Arc<Api>, Cluster) {
    cluster_with(policy(), gpus, pods).await
}

async fn cluster_with(policy: Policy, gpus: u32, pods: &[Bound]) -> (Arc<Api>, Cluster) {
    let api = Api::new();
    api.put(NODES, node("a", gpus));
    for pod in pods {
        api.put(PODS, pod.object());
    }
    let cluster = Cluster::leading_with(api.serve().await, policy).await;
    cluster.until("the budgets are listed", |extender| extender.state().budgets.is_some()).await;
    (api, cluster)
}

fn urgent(quota: &str) -> Value {
    let mut urgent = pod("urgent", &[("quota", quota), ("memory", "1Gi")]);
    urgent["spec"]["priority"] = json!(URGENT);
    urgent
}

/// The victims on node `a` by name, and the number of violated budgets. `proposed` is what kube-scheduler chose. It has
/// forgotten earlier answers.
async fn victims(cluster: &Cluster, pod: &Value, proposed: &[&str]) -> Option<(Vec<String>, i64)> {
    let none = Demand::new(Amount::Whole(1), None);
    cluster.extender.state().index.propose_nominations(
        pod["metadata"]["uid"].as_str().unwrap(),
        &none,
        vec![],
        0,
    );
    let pods: Vec<Value> = proposed.iter().map(|name| json!({"UID": format!("{name}-uid")})).collect();
    let args = json!({"Pod": pod, "NodeNameToVictims": null,
        "NodeNameToMetaVictims": {"a": {"Pods": pods, "NumPDBViolations": 0}}});
    let (status, answer) = cluster.post("preempt", &args).await;
    assert!(status.is_success(), "{status}: {answer}");
    let victims = answer["NodeNameToMetaVictims"].as_object().unwrap().get("a")?;
    let name = |pod: &Value| pod["UID"].as_str().unwrap().trim_end_matches("-uid").to_owned();
    let pods = victims["Pods"].as_array().unwrap().iter().map(name).collect();
    Some((pods, victims["NumPDBViolations"].as_i64().unwrap()))
}

fn only(names: &[&str]) -> Option<(Vec<String>, i64)> {
    Some((names.iter().map(|name| (*name).to_owned()).collect(), 0))
}

#[tokio::test]
async fn victims_are_corrected_to_those_that_make_room_on_one_gpu() {
    let pods = [
        bound("old-0", 0, "0.5", 0, 1),
        bound("young-0", 0, "0.5", 0, 3),
        bound("higher-1", 1, "0.5", 10, 2),
        bound("young-1", 1, "0.5", 0, 4),
    ];
    let (_api, cluster) = cluster(2, &pods).await;
    // The sums of the node suggest the two youngest, which are on different GPUs.
    assert_eq!(victims(&cluster, &urgent("1"), &["young-0", "young-1"]).await, only(&["old-0", "young-0"]));
    assert_eq!(victims(&cluster, &urgent("0.5"), &["young-0"]).await, only(&["young-1"]));
}

#[tokio::test]
async fn node_where_no_eviction_makes_room_is_left_out() {
    let pods = [bound("equal", 0, "0.6", URGENT, 1), bound("lower", 0, "0.3", 0, 2)];
    let (_api, cluster) = cluster(1, &pods).await;
    assert_eq!(victims(&cluster, &urgent("0.5"), &["lower"]).await, None);
    assert_eq!(victims(&cluster, &urgent("0.4"), &["lower"]).await, only(&["lower"]));
}

#[tokio::test]
async fn annotation_priority_evicts_no_pod() {
    let (_api, cluster) = cluster(1, &[bound("other", 0, "1", 0, 1)]).await;
    let critical = pod("critical", &[("quota", "0.5"), ("memory", "1Gi"), ("priority", "latency-critical")]);
    assert_eq!(victims(&cluster, &critical, &["other"]).await, None);
}

#[tokio::test]
async fn victims_without_a_gpu_are_kept_and_needed_resources_are_freed() {
    let cpu = |cores: &str| json!({"cpu": cores});
    let pods = [
        Bound { requests: cpu("4"), ..bound("large", 0, "0.5", 0, 1) },
        Bound { requests: cpu("1"), ..bound("small", 0, "0.5", 0, 2) },
    ];
    let (_api, cluster) = cluster(1, &pods).await;
    assert_eq!(victims(&cluster, &urgent("0.5"), &["hog"]).await, only(&["hog", "small"]));
    let mut wants_cores = urgent("0.5");
    wants_cores["spec"]["containers"][0]["resources"]["requests"] = cpu("4");
    assert_eq!(victims(&cluster, &wants_cores, &["large"]).await, only(&["large"]));
    // One processor is enough for a pod that requests one.
    wants_cores["spec"]["containers"][0]["resources"]["requests"] = cpu("1");
    assert_eq!(victims(&cluster, &wants_cores, &["large"]).await, only(&["small"]));
    // The scheduler may need the end of the large pod for its port.
    wants_cores["spec"]["containers"][0]["ports"] = json!([{"hostPort": 80}]);
    assert_eq!(victims(&cluster, &wants_cores, &["large"]).await, only(&["large"]));
}

#[tokio::test]
async fn protected_pod_is_evicted_only_if_no_other_set_is_enough() {
    let pods = [bound("protected", 0, "0.5", 0, 2), bound("important", 0, "0.5", 10, 1)];
    let (api, cluster) = cluster(1, &pods).await;
    let budget = |allowed: i32| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"name": "protected"}}}, "status": {"disruptionsAllowed": allowed}})
    };
    let is_allowed = |allowed: i32| {
        move |extender: &crate::extender::extender::Extender| {
            let state = extender.state();
            let budget = state.budgets.as_ref().and_then(|budgets| budgets.get("default/one"));
            budget.is_some_and(|budget| budget.disruptions_allowed() == allowed)
        }
    };
    api.put(BUDGETS, budget(0));
    cluster.until("the budget allows none", is_allowed(0)).await;
    assert_eq!(victims(&cluster, &urgent("0.5"), &["protected"]).await, only(&["important"]));
    let both = Some((vec!["important".to_owned(), "protected".to_owned()], 1));
    assert_eq!(victims(&cluster, &urgent("1"), &["important", "protected"]).await, both);
    api.put(BUDGETS, budget(1));
    cluster.until("the budget allows one", is_allowed(1)).await;
    assert_eq!(victims(&cluster, &urgent("0.5"), &["protected"]).await, only(&["protected"]));
    api.delete(BUDGETS, "default/one");
    cluster
        .until("the budget is gone", |extender| extender.state().budgets.as_ref().unwrap().is_empty())
        .await;
    assert_eq!(victims(&cluster, &urgent("0.5"), &["protected"]).await, only(&["protected"]));
}

#[tokio::test]
async fn standby_and_malformed_requests_evict_no_pod() {
    let (_api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    assert_eq!(cluster.post("preempt", &json!({})).await.0.as_u16(), 400);
    let uncached = json!({"Pod": urgent("1"), "NodeNameToVictims": {"a": {"Pods": []}}});
    assert_eq!(cluster.post("preempt", &uncached).await.0.as_u16(), 400);
    let args = json!({"Pod": urgent("1"), "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "victim-uid"}]}}});
    assert_eq!(cluster.post("preempt", &args).await.0.as_u16(), 200);
    cluster.extender.leadership.set_leading(false);
    assert_eq!(cluster.post("preempt", &args).await.0.as_u16(), 503);
}
