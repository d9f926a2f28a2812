//! What follows from the loss of a GPU.

use serde_json::{Value, json};

use super::api::Kind;
use super::node::{Node, last_set, names, of_reason, pod, soon, uuid};
use super::pages::value;

const EVICT: &str = "--lost-gpu-policy=evict";
const NO_GRACE: &str = "--lost-gpu-grace-seconds=0";

async fn start(node: &Node, words: &[&str]) -> super::node::Agent {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    node.start_agent_with_flags("runtime", &words).await
}

fn evicted(asked: &[(String, Value)]) -> Vec<&str> {
    asked.iter().map(|(path, _)| path.split('/').rev().nth(1).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_the_lost_gpu_are_evicted_once_the_api_server_allows_it_and_no_others() {
    let node = Node::with_gpus(2).await;
    for (name, gpu) in [("kept", 0), ("train", 1)] {
        node.put(name, &[("quota", "0.3"), ("assigned-gpu", &uuid(gpu))]);
    }
    let agent = start(&node, &[NO_GRACE, EVICT, "--gpu-look-every-ms=10"]).await;
    last_set(&mut node.managers[1].received(), "the client", |set| names(&set.clients) == ["train"]).await;
    // As a PodDisruptionBudget does.
    node.api.refuse_evictions(1);
    node.gpus.lose(1);
    let mut seen = node.api.seen();
    let refused = of_reason(&mut seen, "EvictionRefused", 1).await.remove(0);
    assert_eq!(refused["regarding"]["uid"], "uid-train");
    let event = of_reason(&mut seen, "EvictedForLostGpu", 1).await.remove(0);
    assert_eq!(event["regarding"]["uid"], "uid-train");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains(&uuid(1)) && note.contains("Xid 79"), "{note}");
    let lost = of_reason(&mut seen, "GpuLost", 1).await.remove(0);
    assert_eq!(lost["regarding"]["kind"], "Node");
    assert_eq!(evicted(&seen.borrow().evictions), ["train", "train"]);
    let gpu = format!("gpu=\"{}\"", uuid(1));
    let counts_it = |text: &str| value(text, "sluice_gpu_lost_pods", &[&gpu]) == Some(1.0);
    node.metrics_with("the pod of the lost GPU", counts_it).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_of_a_replaced_gpu_is_evicted() {
    let node = Node::with_gpus(1).await;
    node.put("stale", &[("quota", "0.3"), ("assigned-gpu", "GPU-of-before")]);
    node.put("fresh", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let agent = start(&node, &[NO_GRACE, EVICT]).await;
    let event = of_reason(&mut node.api.seen(), "EvictedForLostGpu", 1).await.remove(0);
    assert_eq!(event["regarding"]["uid"], "uid-stale");
    assert!(event["note"].as_str().unwrap().contains("GPU-of-before is lost"), "{event}");
    assert_eq!(evicted(&node.api.seen().borrow().evictions), ["stale"]);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_is_tainted_beside_its_other_taints_until_the_gpu_is_back() {
    let node = Node::with_gpus(2).await;
    let foreign = json!({"key": "pool", "effect": "NoSchedule"});
    let name = super::api::NODE;
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "n"}, "spec": {"taints": [foreign]},
    });
    node.api.put(Kind::Nodes, object);
    node.api.put(Kind::Pods, pod("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(1))]));
    let agent = start(&node, &[NO_GRACE, "--gpu-look-every-ms=10", "--lost-gpu-policy=taint"]).await;
    let taints = async |what: &str, wanted: Value| {
        let mut object = node.api.node();
        soon(what, object.wait_for(|object| object["spec"]["taints"] == wanted)).await.unwrap();
    };
    let ours = |effect: &str| json!({"key": "sluice.dev/gpu-lost", "effect": effect});
    node.gpus.lose(1);
    taints("the taint", json!([foreign, ours("PreferNoSchedule")])).await;
    node.gpus.lose(0);
    taints("the taint without a healthy GPU", json!([foreign, ours("NoSchedule")])).await;
    for index in [0, 1] {
        node.gpus.set_condition(index, sluice_node_agent::gpus::driver::Condition::Good);
    }
    taints("no taint", json!([foreign])).await;
    assert!(node.api.seen().borrow().evictions.is_empty());
    agent.end().await;
}
