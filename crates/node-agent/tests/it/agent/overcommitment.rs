//! Memory of pods that may leave the GPU.

use super::api::{Kind, Seen};
use super::node::{Node, last_set, of_reason, soon, uuid};
use crate::fake_gpus::gpu;
use serde_json::json;
use sluice_node_agent::gpus::driver::{Condition, Gpu, ScannedGpu};
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::SetClientsRequest;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_memory_reaches_the_manager_and_the_scheduler_and_memory_may_leave() {
    let node = Node::with_gpus(1).await;
    let gpu = Gpu { numa: Some(1), ..gpu(0) };
    node.gpus.set_answer(Ok(vec![ScannedGpu::Known(gpu, Condition::Good)]));
    // Seven tenths of the usable memory: 80 GiB without 0.5 GiB for each of ten device slots.
    let annotations = [("memory", "52Gi"), ("memory-overcommit", "true"), ("assigned-gpu", &uuid(0))];
    for name in ["first", "second"] {
        node.put(name, &annotations);
    }
    let agent = node.start_agent_with_flags("runtime", &["--host-memory=104Gi".to_owned()]).await;
    let arguments = node.started(1).await.remove(0);
    let (on_gpu, on_host) = (75_u64 << 30, 104_u64 << 30);
    let expected = format!("--overcommit-memory {on_gpu} --host-memory {on_host} --gpu-numa-node 1");
    assert!(arguments.contains(&expected), "{arguments}");
    let mut received = node.managers[0].received();
    let set = last_set(&mut received, "both pods", |set| set.clients.len() == 2).await;
    for client in &set.clients {
        assert_eq!((client.memory_bytes, client.overcommit), (52 << 30, true), "{client:?}");
    }
    let inventory = |object: &serde_json::Value| {
        let annotation = object["metadata"]["annotations"]["sluice.dev/gpus"].as_str()?;
        NodeInventory::from_annotation(annotation).ok()
    };
    let mut seen = node.api.node();
    let object =
        soon("the inventory", seen.wait_for(|node| inventory(node).is_some())).await.unwrap().clone();
    assert_eq!(inventory(&object).unwrap().gpus[0].host_memory_bytes, 104 << 30);
    node.api.delete("first");
    last_set(&mut received, "one pod", |set| set.clients.len() == 1).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_without_host_memory_moves_no_memory() {
    let node = Node::with_gpus(1).await;
    node.api.put(
        Kind::Pods,
        super::node::pod(
            "train",
            &[("memory", "52Gi"), ("memory-overcommit", "true"), ("assigned-gpu", &uuid(0))],
        ),
    );
    let agent = node.start_agent().await;
    let arguments = node.started(1).await.remove(0);
    assert!(
        ["--overcommit-memory", "--host-memory", "--gpu-numa-node"]
            .iter()
            .all(|flag| !arguments.contains(flag)),
        "{arguments}"
    );
    let set = last_set(&mut node.managers[0].received(), "the client", |set| !set.clients.is_empty()).await;
    assert!(!set.clients[0].overcommit, "{set:?}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_is_suspended_while_its_annotation_says_so_also_by_a_new_agent() {
    let node = Node::with_gpus(1).await;
    let put = |suspend: Option<&str>| {
        let own = [("memory", "8Gi"), ("assigned-gpu", &uuid(0))];
        let annotations: Vec<_> = own.into_iter().chain(suspend.map(|value| ("suspend", value))).collect();
        node.put("train", &annotations);
    };
    put(None);
    let agent = node.start_agent().await;
    let mut received = node.managers[0].received();
    last_set(&mut received, "the client", |set| set.clients.iter().any(|client| !client.suspended)).await;
    put(Some("true"));
    let set =
        last_set(&mut received, "the suspension", |set| set.clients.iter().any(|client| client.suspended))
            .await;
    let event = of_reason(&mut node.api.seen(), "Suspended", 1).await.remove(0);
    assert_eq!((&event["regarding"]["uid"], &event["type"]), (&json!("uid-train"), &json!("Normal")));
    agent.end().await;

    let agent = node.start_agent().await;
    let of_new = |other: &SetClientsRequest| other.agent_instance != set.agent_instance;
    let again =
        last_set(&mut received, "the new agent's set", |set| of_new(set) && !set.clients.is_empty()).await;
    assert!(again.clients[0].suspended, "{again:?}");
    put(Some("false"));
    last_set(&mut received, "the resumption", |set| {
        of_new(set) && set.clients.iter().any(|client| !client.suspended)
    })
    .await;
    let event = of_reason(&mut node.api.seen(), "Resumed", 1).await.remove(0);
    assert_eq!(event["regarding"]["uid"], "uid-train");
    // The new agent has repeated no event of the old one.
    assert_eq!(of_reason(&mut node.api.seen(), "Suspended", 1).await.len(), 1);
    agent.end().await;
}

/// Waits until conditions with these statuses were written, all of them to the pod.
async fn conditions(node: &Node, expected: &[&str]) {
    let written = |seen: &Seen| seen.conditions.len() >= expected.len();
    let seen = soon("conditions", node.api.seen().wait_for(written)).await.unwrap().clone();
    let statuses: Vec<_> =
        seen.conditions.iter().map(|(pod, condition)| (pod.as_str(), condition["status"].clone())).collect();
    let expected: Vec<_> = expected.iter().map(|status| ("train", json!(status))).collect();
    assert_eq!(statuses, expected);
    let (_, last) = seen.conditions.last().unwrap();
    assert_eq!(last["type"], "sluice.dev/Suspended");
    assert!(last["reason"].is_string() && last["lastTransitionTime"].is_string(), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn condition_of_a_suspended_pod_follows_its_grants_over_a_new_agent() {
    let node = Node::with_gpus(1).await;
    let suspend = "sluice.dev/suspend";
    node.put("never", &[("memory", "8Gi"), ("assigned-gpu", &uuid(0))]);
    node.put("train", &[("memory", "8Gi"), ("assigned-gpu", &uuid(0))]);
    let manager = &node.managers[0];
    manager.set_memory_leaves(true);
    let agent = node.start_agent().await;
    last_set(&mut manager.received(), "both pods", |set| set.clients.len() == 2).await;
    node.api.annotate("train", suspend, Some("true"));
    of_reason(&mut node.api.seen(), "Suspended", 1).await;
    // It gets grants until its memory has left.
    manager.snapshots(3).await;
    assert!(node.api.seen().borrow().conditions.is_empty());
    node.api.refuse_conditions(1);
    manager.set_memory_leaves(false);
    conditions(&node, &["True"]).await;
    agent.end().await;

    // The condition is right, and the new agent does not write it again: another one would be in the lists below.
    let agent = node.start_agent().await;
    manager.snapshots(1).await;
    conditions(&node, &["True"]).await;
    agent.end().await;

    // While no agent runs, the condition gets lost.
    node.put("train", &[("memory", "8Gi"), ("assigned-gpu", &uuid(0)), ("suspend", "true")]);
    let agent = node.start_agent().await;
    conditions(&node, &["True", "True"]).await;
    agent.end().await;

    // While no agent runs, the pod is resumed.
    node.api.annotate("train", suspend, None);
    let agent = node.start_agent().await;
    conditions(&node, &["True", "True", "False"]).await;
    node.api.annotate("train", suspend, Some("true"));
    conditions(&node, &["True", "True", "False", "True"]).await;
    agent.end().await;
}
