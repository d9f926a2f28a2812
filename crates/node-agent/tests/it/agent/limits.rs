//! Annotations become limits of clients, and end with the pod.

use super::api::Kind;
use super::node::{Node, last_set, names, of_reason, soon, uuid};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_becomes_a_client_when_assigned_and_leaves_when_it_ends() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    let (mut first, mut second) = (node.managers[0].received(), node.managers[1].received());
    last_set(&mut first, "an empty set", |set| set.clients.is_empty()).await;

    node.put("train", &[("quota", "0.3"), ("limit", "0.5"), ("memory", "2Gi")]);
    let seen = &mut node.api.seen();
    let refused = of_reason(seen, "GpuRefused", 1).await.remove(0);
    assert_eq!(refused["regarding"]["uid"], "uid-train");
    assert!(refused["note"].as_str().unwrap().contains("sluice.dev/assigned-gpu is missing"), "{refused}");

    node.put("train", &[("quota", "0.3"), ("limit", "0.5"), ("memory", "2Gi"), ("assigned-gpu", &uuid(1))]);
    let set = last_set(&mut second, "the client", |set| !set.clients.is_empty()).await;
    let client = &set.clients[0];
    assert_eq!((client.pod_uid.as_str(), client.namespace.as_str()), ("uid-train", "ml"));
    assert_eq!((client.quota_ppm, client.limit_ppm, client.memory_bytes), (300_000, 500_000, 2 << 30));

    let mut ended = super::node::pod("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(1))]);
    ended["status"]["phase"] = json!("Succeeded");
    node.api.put(Kind::Pods, ended);
    let after =
        last_set(&mut second, "the client leaves", |set| set.clients.is_empty() && set.generation > 1).await;
    assert!(after.generation > set.generation);
    assert_eq!(after.agent_instance, set.agent_instance);
    // The other GPU's manager received nothing new.
    assert_eq!(first.borrow().len(), 1);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminating_pod_stays_a_client_until_its_object_is_gone() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let agent = node.start_agent().await;
    let mut received = node.managers[0].received();
    last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    let mut terminating = super::node::pod("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    node.api.put(Kind::Pods, terminating);
    node.put("other", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    last_set(&mut received, "both", |set| names(&set.clients) == ["other", "train"]).await;
    node.api.delete("train");
    last_set(&mut received, "one", |set| names(&set.clients) == ["other"]).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_remain_while_the_api_server_is_away_and_gone_ones_are_removed_afterwards() {
    let node = Node::with_gpus(1).await;
    for name in ["a", "b"] {
        node.put(name, &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    }
    let agent = node.start_agent().await;
    let mut received = node.managers[0].received();
    let before = last_set(&mut received, "both", |set| names(&set.clients) == ["a", "b"]).await;

    node.api.go_away();
    node.api.delete("a");
    let mut seen = node.api.seen();
    soon("the agent asks in vain", seen.wait_for(|seen| seen.turned_away >= 4)).await.unwrap();
    assert_eq!(received.borrow().last().unwrap().generation, before.generation);
    let has_both = |state: &Value| state["gpus"][0]["in_force"].as_array().unwrap().len() == 2;
    node.state_with("both in force", has_both).await;

    node.put("c", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    node.api.come_back();
    last_set(&mut received, "after the new list", |set| names(&set.clients) == ["b", "c"]).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_with_impossible_assignment_gets_an_event_and_others_their_gpu() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    node.put("first", &[("quota", "0.8"), ("assigned-gpu", &uuid(0))]);
    let mut received = node.managers[0].received();
    last_set(&mut received, "the first", |set| names(&set.clients) == ["first"]).await;
    node.put("stranger", &[("quota", "0.1"), ("assigned-gpu", "GPU-of-another-node")]);
    node.put("second", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    node.put("third", &[("quota", "0.1"), ("assigned-gpu", &uuid(0))]);
    last_set(&mut received, "the third", |set| names(&set.clients) == ["first", "third"]).await;
    let mut seen = node.api.seen();
    let events = of_reason(&mut seen, "GpuRefused", 2).await;
    let note = |uid: &str| {
        let event = events.iter().find(|event| event["regarding"]["uid"] == uid).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["note"].as_str().unwrap().to_owned())
    };
    let (kind, words) = note("uid-stranger");
    assert!(
        kind == "Warning"
            && words.contains("GPU-of-another-node, which was assigned to it, is not a GPU of this node"),
        "{words}"
    );
    assert!(note("uid-second").1.contains("has 0.200 free, 0.300 asked"), "{:?}", note("uid-second"));
    agent.end().await;
}
