//! Countable amounts in the node's status.

use serde_json::{Value, json};

use super::api::Kind;
use super::node::{Node, soon, uuid};

/// Waits until the node offers this much time, in thousandths of a GPU, as capacity and as allocatable amount.
pub(super) async fn offers(node: &Node, milli: u64) -> Value {
    let wanted = json!(milli.to_string());
    let is_there = |object: &Value| {
        ["capacity", "allocatable"].iter().all(|field| object["status"][field]["sluice.dev/milli"] == wanted)
    };
    soon("the amounts", node.api.node().wait_for(is_there)).await.unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amounts_are_written_and_restored_after_kubelet_zeroes_them() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    let mut object = offers(&node, 2000).await;
    let memory = object["status"]["capacity"]["sluice.dev/memory-mib"].clone();
    assert_eq!(object["status"]["allocatable"]["sluice.dev/memory-mib"], memory);
    assert!(memory.as_str().is_some_and(|memory| memory != "0"), "{memory}");
    // What a kubelet does that starts without its device checkpoint.
    for field in ["capacity", "allocatable"] {
        object["status"][field] = json!({"cpu": "8", "sluice.dev/milli": "0", "sluice.dev/memory-mib": "0"});
    }
    node.api.put(Kind::Nodes, object);
    let object = offers(&node, 2000).await;
    assert_eq!(object["status"]["capacity"]["cpu"], "8");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amounts_follow_a_gpu_that_is_lost_and_an_agent_that_restarts() {
    let node = Node::with_gpus(2).await;
    node.put("train", &[("quota", "0.8"), ("memory", "1Gi"), ("assigned-gpu", &uuid(1))]);
    let agent = node.start_agent().await;
    offers(&node, 2000).await;
    node.gpus.lose(1);
    // The healthy GPU, and what the pod of the lost one requests.
    offers(&node, 1800).await;
    agent.end().await;
    let agent = node.start_agent().await;
    offers(&node, 1800).await;
    node.api.delete("train");
    offers(&node, 1000).await;
    agent.end().await;
}
