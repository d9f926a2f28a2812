//! Preemption as a kube-scheduler and an API server see it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Cluster, names, node, pod, uuid};
use super::fake_api::{Api, BUDGETS, NODES, PODS};

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
    let api = Api::new();
    api.put(NODES, node("a", gpus));
    for pod in pods {
        api.put(PODS, pod.object());
    }
    let cluster = Cluster::leading(api.serve().await).await;
    cluster.until("the budgets are listed", |extender| extender.state().budgets.is_some()).await;
    (api, cluster)
}

fn urgent(quota: &str) -> Value {
    let mut urgent = pod("urgent", &[("quota", quota), ("memory", "1Gi")]);
    urgent["spec"]["priority"] = json!(URGENT);
    urgent
}

/// The victims on node `a` by name, and the number of violated budgets. `proposed` is what kube-scheduler chose.
async fn victims(cluster: &Cluster, pod: &Value, proposed: &[&str]) -> Option<(Vec<String>, i64)> {
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
    assert_eq!(victims(&cluster, &urgent("0.5"), &["hog"]).await, only(&["small", "hog"]));
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
async fn pod_that_waits_for_its_victims_evicts_none_on_another_node() {
    let (api, cluster) = cluster(1, &[bound("victim", 0, "0.6", 0, 1)]).await;
    api.put(NODES, node("b", 1));
    let mut other = bound("other", 0, "0.6", 0, 1).object();
    other["spec"]["nodeName"] = json!("b");
    other["metadata"]["annotations"]["sluice.dev/assigned-gpu"] = json!(uuid("b", 0));
    api.put(PODS, other);
    cluster.until("both are bound", |extender| extender.state().index.counts() == (0, 2)).await;
    let mut urgent = urgent("1");
    let ask = |pod: &Value| {
        let victims = |name: &str| json!({"Pods": [{"UID": format!("{name}-uid")}], "NumPDBViolations": 0});
        json!({"Pod": pod, "NodeNameToMetaVictims": {"a": victims("victim"), "b": victims("other")}})
    };
    let nodes = |answer: Value| -> Vec<String> {
        answer["NodeNameToMetaVictims"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(nodes(cluster.post("preempt", &ask(&urgent)).await.1), ["a", "b"]);
    // kube-scheduler has chosen `a`, and asks again before it has seen that the victim is being deleted.
    urgent["status"]["nominatedNodeName"] = json!("a");
    assert_eq!(nodes(cluster.post("preempt", &ask(&urgent)).await.1), ["a"]);
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
    tokio::time::timeout(super::cluster::SOON, cleared).await.unwrap();
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
