//! Pods with a share of each of several GPUs.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_proto::nri::SynchronizeRequest;

use super::amounts::offers;
use super::injection::{request, sandbox};
use super::node::{Node, last_set, names, uuid};
use super::pages::value;
use super::slots::unhealthy_slots;
use crate::support::kubelet::Kubelet;
use crate::support::runtime::Runtime;

/// A quarter of each of the first and the third GPU.
fn pair() -> String {
    format!("{},{}", uuid(0), uuid(2))
}

const QUARTERS: [(&str, &str); 4] = [("gpus", "2"), ("quota", "0.25"), ("limit", "0.5"), ("memory", "2Gi")];

fn annotations(assigned: &str) -> Vec<(&'static str, &str)> {
    QUARTERS.into_iter().chain([("assigned-gpu", assigned)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_is_a_client_of_the_manager_of_each_of_its_gpus_and_of_no_other() {
    let node = Node::with_gpus(3).await;
    let agent = node.start_agent().await;
    node.put("train", &annotations(&pair()));
    node.put("other", &[("quota", "0.5"), ("assigned-gpu", &uuid(1))]);
    for at in [0, 2] {
        let mut received = node.managers[at].received();
        let set = last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
        let client = &set.clients[0];
        assert_eq!(
            (client.quota_ppm, client.limit_ppm, client.memory_bytes),
            (250_000, 500_000, 2 << 30),
            "GPU {at}"
        );
    }
    last_set(&mut node.managers[1].received(), "the other", |set| names(&set.clients) == ["other"]).await;
    node.managers_serve().await;
    let answers = |text: &str| {
        (0..3).all(|at| value(text, "sluice_manager_up", &[&format!("gpu=\"{}\"", uuid(at))]) == Some(1.0))
    };
    let text = node.metrics_with("each manager answers", answers).await;
    for at in 0..3 {
        let gpu = format!("gpu=\"{}\"", uuid(at));
        let quota = value(&text, "sluice_client_quota_ratio", &["pod=\"train\"", &gpu]);
        assert_eq!(quota, (at != 1).then_some(0.25), "GPU {at}\n{text}");
        let assigned = value(&text, "sluice_gpu_quota_assigned_ratio", &[&gpu]);
        assert_eq!(assigned, Some(if at == 1 { 0.5 } else { 0.25 }), "GPU {at}\n{text}");
    }
    let is_in_force = |state: &Value| (0..3).all(|at| !state["gpus"][at]["in_force"][0].is_null());
    let state = node.state_with("the clients in force", is_in_force).await;
    for at in [0, 2] {
        let gpu = &state["gpus"][at];
        for list in ["wanted", "in_force"] {
            assert_eq!(
                (&gpu[list][0]["pod"], &gpu[list][0]["quota_ppm"]),
                (&"train".into(), &250_000.into())
            );
        }
    }
    node.api.delete("train");
    for at in [0, 2] {
        last_set(&mut node.managers[at].received(), "an empty set", |set| set.clients.is_empty()).await;
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_whose_assignment_names_too_few_gpus_is_a_client_of_none() {
    let node = Node::with_gpus(3).await;
    let agent = node.start_agent().await;
    node.put("short", &annotations(&uuid(0)));
    node.put("good", &annotations(&pair()));
    last_set(&mut node.managers[0].received(), "the client", |set| names(&set.clients) == ["good"]).await;
    let state = node.state_with("the refusal", |state| !state["refused"][0].is_null()).await;
    let reason = "it asks for 2 GPU(s), but sluice.dev/assigned-gpu names 1";
    assert_eq!(state["refused"][0]["reason"], reason);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_gets_exactly_the_gpus_of_its_pod() {
    let node = Node::with_gpus(3).await;
    node.write_cdi(&[uuid(0), uuid(1), uuid(2)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let agent = node.start_agent_with("nri").await;
    let mut plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    let assigned = pair();
    let annotations = [annotations(&assigned), vec![("container", "main")]].concat();
    node.put("train", &annotations);
    last_set(&mut node.managers[0].received(), "the client", |set| !set.clients.is_empty()).await;
    let asked = request(&sandbox("train", &annotations), "main");
    let adjust = plugin.create(&asked).await.unwrap().adjust.unwrap();
    let devices: Vec<&str> = adjust.cdi_devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(devices, [0, 2].map(|at| format!("nvidia.com/gpu={}", uuid(at))));
    let side = request(&sandbox("train", &annotations), "side");
    assert_eq!(plugin.create(&side).await.unwrap().adjust.unwrap_or_default(), Default::default());
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_gpu_makes_all_slots_of_the_pod_unhealthy_and_its_amounts_remain() {
    let node = Node::with_gpus(3).await;
    node.put("train", &annotations(&pair()));
    node.put("other", &[("quota", "0.5"), ("assigned-gpu", &uuid(0))]);
    node.write_checkpoint(&[("train", &[3, 25]), ("other", &[4])]);
    let mut kubelet = Kubelet::start(&node.plugin_folder());
    let agent = node.start_agent().await;
    let mut plugin = kubelet.next_plugin().await;
    let mut stream = plugin.listen().await;
    assert_eq!(unhealthy_slots(&mut stream, 30).await, BTreeSet::new());
    node.gpus.lose(2);
    // Two healthy GPUs, and the one slot that the pod has of the lost GPU.
    let unhealthy = unhealthy_slots(&mut stream, 21).await;
    assert!(unhealthy.is_superset(&BTreeSet::from([3, 25])) && !unhealthy.contains(&4), "{unhealthy:?}");
    // The same for the time: the pod's other quarter is one of a healthy GPU.
    offers(&node, 2250).await;
    agent.end().await;
}
