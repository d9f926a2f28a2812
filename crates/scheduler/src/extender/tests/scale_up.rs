//! Pods that ask an autoscaler for a node.

use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Cluster, names, node, pod, policy};
use super::fake_api::{Api, Fault, NODES, PODS};
use crate::extender::extender::Policy;
use crate::extender::scale_up::Home;

const OWN: &str = "sluice-system";

/// A node with two GPUs, 0.2 of each free.
async fn fragmented(policy: Policy) -> (Arc<Api>, Cluster, Home) {
    let api = Api::new();
    api.put(NODES, node("a", 2));
    let mut own = pod("extender-0", &[]);
    own["metadata"]["namespace"] = json!(OWN);
    own["spec"]["schedulerName"] = json!("default-scheduler");
    api.put(PODS, own);
    let client = api.serve().await;
    let home = Home::find(&client, OWN, "extender-0").await.unwrap();
    let cluster = Cluster::leading_with(client, policy).await;
    for name in ["first", "second"] {
        let full = pod(name, &[("quota", "0.8"), ("memory", "1Gi")]);
        api.put(PODS, full.clone());
        assert_eq!(names(&cluster.filter(&full, &["a"]).await), ["a"]);
        assert_eq!(cluster.bind(&full, "a").await, "");
    }
    (api, cluster, home)
}

/// A waiting pod with what a user and the webhook write.
fn waiting() -> Value {
    let mut object = pod("waiting", &[("quota", "0.3"), ("memory", "1Gi")]);
    object["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    object["spec"]["containers"][0]["env"] = json!([{"name": "TOKEN", "value": "secret"}]);
    object["spec"]["nodeSelector"] = json!({"pool": "gpus"});
    object["spec"]["tolerations"] = json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]);
    object["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    object["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "sluice.dev/gpu.model.NVIDIA-H100", "operator": "Exists"}]}]}}});
    object
}

fn scale_up_pods(api: &Api) -> Vec<Value> {
    let is_own = |pod: &Value| pod["metadata"]["labels"].get("scale-up.sluice.dev/pod-uid").is_some();
    api.all(PODS).into_iter().filter(is_own).collect()
}

#[tokio::test]
async fn refused_pod_gets_a_pod_that_only_a_node_without_gpu_pods_can_take() {
    let (api, cluster, home) = fragmented(policy()).await;
    let object = waiting();
    api.put(PODS, object.clone());
    assert!(names(&cluster.filter(&object, &["a"]).await).is_empty());
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    let [made] = &scale_up_pods(&api)[..] else { panic!("not one pod") };
    assert_eq!(made["metadata"]["namespace"], OWN);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "extender-0-uid");
    assert_eq!(made["metadata"]["annotations"]["scale-up.sluice.dev/pod"], "default/waiting");
    let (spec, wanted) = (&made["spec"], &object["spec"]);
    for field in ["nodeSelector", "tolerations"] {
        assert_eq!(spec[field], wanted[field]);
    }
    assert_eq!(spec["affinity"]["nodeAffinity"], wanted["affinity"]["nodeAffinity"]);
    assert_eq!(spec["containers"][0]["resources"], wanted["containers"][0]["resources"]);
    assert_eq!((spec["containers"][0].get("env"), spec.get("volumes")), (None, None));
    assert_ne!(spec["schedulerName"], "sluice-scheduler");
    let repelled = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(repelled["labelSelector"]["matchLabels"], json!({"sluice.dev/gpu-pod": "true"}));
    assert_eq!(
        (&repelled["namespaceSelector"], &repelled["topologyKey"]),
        (&json!({}), &json!("kubernetes.io/hostname"))
    );
    let condition = &made["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("Unschedulable"))
    );
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert_eq!(scale_up_pods(&api).len(), 1);
}

#[tokio::test]
async fn pod_whose_mark_was_not_written_is_marked_later() {
    let (api, cluster, home) = fragmented(policy()).await;
    let object = waiting();
    api.put(PODS, object.clone());
    cluster.filter(&object, &["a"]).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    let mut made = scale_up_pods(&api).remove(0);
    made["status"] = json!({"phase": "Pending"});
    api.put(PODS, made);
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert_eq!(scale_up_pods(&api)[0]["status"]["conditions"][0]["reason"], "Unschedulable");
}

#[tokio::test]
async fn pod_for_the_autoscaler_ends_when_the_waiting_pod_has_a_node() {
    let (api, cluster, home) = fragmented(policy()).await;
    let object = waiting();
    api.put(PODS, object.clone());
    cluster.filter(&object, &["a"]).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert_eq!(scale_up_pods(&api).len(), 1);
    api.put(NODES, node("new", 1));
    cluster.until("the node is known", |extender| extender.state().index.uses().count() == 2).await;
    assert_eq!(names(&cluster.filter(&object, &["a", "new"]).await), ["new"]);
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
}

#[tokio::test]
async fn pod_for_the_autoscaler_ends_with_the_waiting_pod() {
    let (api, cluster, home) = fragmented(policy()).await;
    let object = waiting();
    api.put(PODS, object.clone());
    cluster.filter(&object, &["a"]).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    api.delete(PODS, "default/waiting");
    cluster.until("the end is known", |extender| !extender.state().refused.contains("waiting-uid")).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
    // Nothing is created for a pod that another one with its name has replaced.
    cluster.filter(&object, &["a"]).await;
    let mut other = object.clone();
    other["metadata"]["uid"] = json!("other-uid");
    api.put(PODS, other);
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
}

#[tokio::test]
async fn pod_whose_victims_are_ending_asks_for_no_node() {
    let (api, cluster, home) = fragmented(policy()).await;
    let mut urgent = waiting();
    urgent["spec"]["priority"] = json!(1000);
    api.put(PODS, urgent.clone());
    cluster.until("the budgets are listed", |extender| extender.state().budgets.is_some()).await;
    cluster.until("the watch shows the binds", |extender| extender.state().occupants.len() == 2).await;
    for _ in 0..2 {
        assert!(names(&cluster.filter(&urgent, &["a"]).await).is_empty());
    }
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
}

#[tokio::test]
async fn pod_that_was_refused_just_now_asks_for_no_node() {
    let after = std::time::Duration::from_secs(3600);
    let (api, cluster, home) = fragmented(Policy { scale_up_after: after, ..policy() }).await;
    let object = waiting();
    api.put(PODS, object.clone());
    cluster.filter(&object, &["a"]).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
}

#[tokio::test]
async fn pod_that_no_new_node_can_take_asks_for_no_node() {
    let (api, cluster, home) = fragmented(policy()).await;
    let too_large = pod("large", &[("quota", "0.3"), ("memory", "81Gi")]);
    let of_one_gpu = pod("chosen", &[("quota", "0.3"), ("memory", "1Gi"), ("gpu-uuid", "GPU-a-0")]);
    for object in [too_large, of_one_gpu] {
        api.put(PODS, object.clone());
        assert!(names(&cluster.filter(&object, &["a"]).await).is_empty());
    }
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert!(scale_up_pods(&api).is_empty());
}

/// Creates a waiting pod, which the extender refuses.
async fn add_waiting(api: &Api, cluster: &Cluster, namespace: &str, name: &str) {
    let mut object = pod(name, &[("quota", "0.3"), ("memory", "1Gi")]);
    object["metadata"]["namespace"] = json!(namespace);
    api.put(PODS, object.clone());
    assert!(names(&cluster.filter(&object, &["a"]).await).is_empty());
}

#[tokio::test]
async fn one_namespace_gets_only_some_of_the_scale_up_pods() {
    let (api, cluster, home) = fragmented(policy()).await;
    for number in 0..12 {
        add_waiting(&api, &cluster, "crowded", &format!("pod-{number}")).await;
    }
    add_waiting(&api, &cluster, "other", "single").await;
    for _ in 0..2 {
        cluster.extender.update_scale_up_pods(&home).await.unwrap();
        let made = scale_up_pods(&api);
        let in_namespace = |namespace: &str| {
            let of = |pod: &&Value| {
                let waiting = pod["metadata"]["annotations"]["scale-up.sluice.dev/pod"].as_str().unwrap();
                waiting.starts_with(namespace)
            };
            made.iter().filter(of).count()
        };
        assert_eq!((in_namespace("crowded/"), in_namespace("other/")), (10, 1));
    }
}

#[tokio::test]
async fn failed_creation_takes_no_place_of_another_pod() {
    let (api, cluster, home) = fragmented(policy()).await;
    for number in 0..11 {
        add_waiting(&api, &cluster, "default", &format!("pod-{number}")).await;
    }
    let mut refused = 0;
    *api.create_fault.lock().unwrap() = Box::new(move || {
        refused += 1;
        if refused <= 10 { Fault::Refuse(422) } else { Fault::None }
    });
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    assert_eq!(scale_up_pods(&api).len(), 1);
}

#[tokio::test]
async fn error_about_one_waiting_pod_keeps_no_other_from_its_scale_up_pod() {
    let (api, cluster, home) = fragmented(policy()).await;
    add_waiting(&api, &cluster, "default", "broken").await;
    add_waiting(&api, &cluster, "default", "waiting").await;
    // The client cannot read this answer.
    let mut broken = api.get(PODS, "default/broken").unwrap();
    broken["spec"] = json!("none");
    api.hold_watches(PODS);
    api.put(PODS, broken);
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    let [made] = &scale_up_pods(&api)[..] else { panic!("not one pod") };
    assert_eq!(made["metadata"]["annotations"]["scale-up.sluice.dev/pod"], "default/waiting");
}

/// The API server refuses containers with claims that the pod does not have.
#[tokio::test]
async fn scale_up_pod_has_no_resource_claims() {
    let (api, cluster, home) = fragmented(policy()).await;
    let mut object = waiting();
    object["spec"]["resourceClaims"] = json!([{"name": "nic", "resourceClaimName": "rdma"}]);
    object["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "nic"}]);
    api.put(PODS, object.clone());
    cluster.filter(&object, &["a"]).await;
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    let [made] = &scale_up_pods(&api)[..] else { panic!("not one pod") };
    assert_eq!(made["spec"].get("resourceClaims"), None);
    assert_eq!(made["spec"]["containers"][0]["resources"].get("claims"), None);
}

/// A test in Go asks kube-scheduler's filters about the scale-up pod: tests/cluster/modules/kubernetes-1.34/autoscaler.
#[tokio::test]
async fn recorded_pod_gets_the_scale_up_pod_that_the_autoscalers_test_expects() {
    let (api, cluster, home) = fragmented(policy()).await;
    let recorded: Value = serde_json::from_str(include_str!("recorded/scale_up.json")).unwrap();
    let mut object = recorded["waiting"].clone();
    object["metadata"]["uid"] = json!("train-uid");
    // The node of this test has no such model.
    object["metadata"]["annotations"].as_object_mut().unwrap().remove("sluice.dev/gpu-model");
    api.put(PODS, object.clone());
    assert!(names(&cluster.filter(&object, &["a"]).await).is_empty());
    cluster.extender.update_scale_up_pods(&home).await.unwrap();
    let [made] = &mut scale_up_pods(&api)[..] else { panic!("not one pod") };
    for added in ["uid", "resourceVersion"] {
        made["metadata"].as_object_mut().unwrap().remove(added);
    }
    made.as_object_mut().unwrap().remove("status");
    assert_eq!(*made, recorded["scaleUp"]);
}
