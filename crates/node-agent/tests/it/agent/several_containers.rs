//! Pods of which several containers share the GPU.

use std::collections::BTreeSet;

use serde_json::json;
use sluice_proto::nri::SynchronizeRequest;

use super::api::Kind;
use super::injection::{request, sandbox};
use super::node::{Node, last_set, names, pod, uuid};
use super::slots::unhealthy_slots;
use crate::support::kubelet::Kubelet;
use crate::support::runtime::Runtime;

/// The containers `main` and `side` share the first GPU.
fn put_shared(node: &Node, assigned: &str) {
    let annotations = [("quota", "0.3"), ("container", "main,side"), ("assigned-gpu", assigned)];
    let mut object = pod("shared", &annotations);
    object["spec"]["containers"][1]["resources"] = json!({"limits": {"sluice.dev/gpu": "1"}});
    node.api.put(Kind::Pods, object);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_containers_get_the_gpu_and_the_pod_is_one_client() {
    let node = Node::with_gpus(2).await;
    node.write_cdi(&[uuid(0), uuid(1)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let agent = node.start_agent_with("nri").await;
    let mut plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    let first = uuid(0);
    put_shared(&node, &first);
    let set = last_set(&mut node.managers[0].received(), "the client", |set| !set.clients.is_empty()).await;
    assert_eq!((names(&set.clients), set.clients[0].quota_ppm), (vec!["shared"], 300_000));
    let annotations = [("quota", "0.3"), ("container", "main,side"), ("assigned-gpu", first.as_str())];
    for container in ["main", "side"] {
        let asked = request(&sandbox("shared", &annotations), container);
        let adjust = plugin.create(&asked).await.unwrap().adjust.unwrap();
        assert_eq!(adjust.cdi_devices.len(), 1, "{container}");
        assert_eq!(adjust.cdi_devices[0].name, format!("nvidia.com/gpu={first}"), "{container}");
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_gpu_offers_the_slots_of_both_containers() {
    let node = Node::with_gpus(2).await;
    put_shared(&node, &uuid(0));
    node.write_checkpoint(&[("shared", &[7, 12])]);
    let mut kubelet = Kubelet::start(&node.plugin_folder());
    let agent = node.start_agent().await;
    let mut plugin = kubelet.next_plugin().await;
    let mut stream = plugin.listen().await;
    assert_eq!(unhealthy_slots(&mut stream, 20).await, BTreeSet::new());
    node.gpus.lose(0);
    // The healthy GPU, and the two slots that the scheduler subtracts for the pod.
    let unhealthy = unhealthy_slots(&mut stream, 12).await;
    assert!(unhealthy.is_superset(&BTreeSet::from([7, 12])), "{unhealthy:?}");
    agent.end().await;
}
