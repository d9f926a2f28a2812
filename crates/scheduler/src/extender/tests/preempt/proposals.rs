//! Corrections of what kube-scheduler proposes for one node.

use serde_json::json;

use super::super::cluster::pod;
use super::super::fake_api::PODS;
use super::{Bound, bound, cluster, only, urgent, victims};

#[tokio::test]
async fn node_is_left_out_if_a_proposed_pod_has_just_been_bound() {
    let (api, cluster) = cluster(2, &[bound("old", 0, "0.5", 0, 1)]).await;
    let new = pod("new", &[("quota", "0.6"), ("memory", "1Gi")]);
    api.put(PODS, new.clone());
    cluster.filter(&new, &["a"]).await;
    api.hold_watches(PODS);
    assert_eq!(cluster.bind(&new, "a").await, "");
    assert_eq!(victims(&cluster, &urgent("0.6"), &["new"]).await, None);
    api.release_watches(PODS);
    cluster
        .until("the watch shows the bind", |extender| extender.state().occupants.contains_key("new-uid"))
        .await;
    assert_eq!(victims(&cluster, &urgent("0.6"), &["new"]).await, only(&["new"]));
}

#[tokio::test]
async fn pods_without_a_gpu_keep_their_place_in_the_order_of_importance() {
    let pods = [bound("higher", 0, "0.6", 10, 1), bound("lower", 1, "0.6", 0, 2)];
    let (_api, cluster) = cluster(2, &pods).await;
    let of = async |quota, proposed: &[&str]| victims(&cluster, &urgent(quota), proposed).await;
    assert_eq!(of("0.6", &["hog", "lower"]).await, only(&["hog", "lower"]));
    assert_eq!(of("0.6", &["lower", "hog"]).await, only(&["lower", "hog"]));
    // `lower` replaces `higher`, and may be less important than the other pod.
    assert_eq!(of("0.6", &["higher", "hog"]).await, only(&["hog", "lower"]));
}

#[tokio::test]
async fn pod_with_required_affinity_to_pods_evicts_none_that_was_not_proposed() {
    let pods = [
        bound("a", 0, "0.5", 0, 1),
        bound("b", 0, "0.5", 0, 2),
        bound("c", 1, "0.5", 0, 3),
        bound("d", 1, "0.5", 0, 4),
    ];
    let (_api, cluster) = cluster(2, &pods).await;
    let mut beside = urgent("1");
    beside["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"name": "b"}}}]}});
    assert_eq!(victims(&cluster, &beside, &["a", "c"]).await, None);
    assert_eq!(victims(&cluster, &beside, &["c", "d"]).await, only(&["c", "d"]));
}

#[tokio::test]
async fn pod_is_not_evicted_for_a_device_slot_that_is_free_on_the_gpus() {
    let slot = json!({"sluice.dev/gpu": "1"});
    let pods = [
        Bound { requests: slot.clone(), ..bound("higher", 0, "0.5", 10, 1) },
        Bound { requests: slot.clone(), ..bound("lower", 1, "0.6", 0, 2) },
    ];
    let (_api, cluster) = cluster(3, &pods).await;
    let mut pair = urgent("0.5");
    pair["metadata"]["annotations"]["sluice.dev/gpus"] = json!("3");
    pair["spec"]["containers"][0]["resources"]["requests"] = json!({"sluice.dev/gpu": "3"});
    // 27 slots are free. kube-scheduler counts 1.4 GPUs in the sum, and proposes the pod of the lower priority.
    assert_eq!(victims(&cluster, &pair, &["lower"]).await, only(&["lower"]));
    assert_eq!(victims(&cluster, &pair, &["higher", "lower"]).await, only(&["lower"]));
}
