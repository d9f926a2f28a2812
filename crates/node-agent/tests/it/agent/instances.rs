//! The agent on a node whose GPU is in MIG mode and whose instances are given.

use serde_json::{Value, json};
use sluice_node_agent::gpus::driver::{Condition, Gpu, ScannedGpu};
use sluice_placement::inventory::{MigInstance, NodeInventory};

use super::api::Kind;
use super::claims;
use super::manager::Manager;
use super::node::{Node, last_set, names, pod, soon};
use crate::fake_gpus;
use crate::support::claims::Driver;

const UUIDS: [&str; 2] =
    ["MIG-00000000-0000-0000-0000-00000000000a", "MIG-00000000-0000-0000-0000-00000000000b"];

/// A node with two instances of one GPU.
async fn node() -> Node {
    let mut node = Node::with_gpus(0).await;
    let instance = |uuid: &str| Gpu {
        uuid: uuid.to_owned(),
        model: "Fake GPU MIG 1g.10gb".into(),
        memory_bytes: 10 << 30,
        mig: Some(MigInstance {
            parent: fake_gpus::gpu(0).uuid,
            profile: "1g.10gb".into(),
            is_shared: false,
        }),
        ..fake_gpus::gpu(0)
    };
    node.gpus.set_answer(Ok(UUIDS.map(|uuid| ScannedGpu::Known(instance(uuid), Condition::Good)).to_vec()));
    node.managers = UUIDS.map(|uuid| Manager::start(&node.control_socket(uuid), uuid)).into();
    node.write_cdi(&UUIDS.map(str::to_owned));
    node
}

/// Whether several pods may share each instance of the node's annotation; `None` if it has none.
fn are_shared(node: &Value) -> Option<Vec<bool>> {
    let text = node["metadata"]["annotations"]["sluice.dev/gpus"].as_str()?;
    let inventory = NodeInventory::from_annotation(text).unwrap();
    Some(inventory.gpus.iter().map(|gpu| gpu.mig.as_ref().unwrap().is_shared).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_has_a_manager_of_its_own_and_is_for_one_pod_until_its_controls_are_proven() {
    let node = node().await;
    let continue_tests = node.block_tests();
    let agent = node.start_agent().await;
    let mut object = node.api.node();
    soon("the inventory", object.wait_for(|node| are_shared(node) == Some(vec![false; 2]))).await.unwrap();
    continue_tests();
    soon("the proof", object.wait_for(|node| are_shared(node) == Some(vec![true; 2]))).await.unwrap();
    let mut started = node.started(2).await;
    started.sort();
    for (arguments, uuid) in started.iter().zip(UUIDS) {
        assert!(arguments.contains(&format!("pod-manager --gpu-uuid {uuid} ")), "{arguments}");
    }

    // Half of the instance's memory.
    node.put("half", &[("quota", "0.5"), ("gpu-uuid", UUIDS[1]), ("assigned-gpu", UUIDS[1])]);
    let mut received = node.managers[1].received();
    let set = last_set(&mut received, "the client", |set| names(&set.clients) == ["half"]).await;
    assert_eq!((set.clients[0].quota_ppm, set.clients[0].memory_bytes), (500_000, usable() / 2));
    claims::serves_no_client(&node).await;
    agent.end().await;
}

/// Memory that pods may request of an instance: without the reserve for contexts, a tenth.
fn usable() -> u64 {
    (10 << 30) - (1 << 30)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_self_tests_an_instance_is_a_device_with_one_seat() {
    let node = node().await;
    node.api.label(claims::LABEL, Some("true"));
    let mut seen = node.api.seen();
    let flags = [&claims::flags(&node)[..], &["--self-test=off".to_owned()]].concat();
    let agent = node.start_agent_with_flags("runtime", &flags).await;
    let mut driver = Driver::registered(&node.kubelet_folder()).await;
    let stored = claims::slice(&mut seen, "the slice", |slice| claims::devices(slice) == 2).await;
    for (device, uuid) in stored["spec"]["devices"].as_array().unwrap().iter().zip(UUIDS) {
        assert_eq!(device["name"], json!(uuid.to_lowercase()));
        assert_eq!(device["attributes"]["profile"], json!({"string": "1g.10gb"}));
        assert_eq!(device["attributes"]["parentUUID"], json!({"string": fake_gpus::gpu(0).uuid}));
        assert_eq!(device["capacity"]["seats"]["value"], "1");
    }
    let mut claim = claims::claim("a", 0, 1000, json!({}));
    claim["status"]["allocation"]["devices"]["results"][0]["device"] = json!(UUIDS[0].to_lowercase());
    node.api.put(Kind::Pods, pod("a-pod", &[]));
    node.api.put(Kind::Claims, claim);
    let given = driver.prepare("a").await.unwrap();
    assert_eq!(
        given[0].cdi_device_ids,
        [format!("nvidia.com/gpu={}", UUIDS[0]), "sluice.dev/library=current".to_owned()]
    );
    let mut received = node.managers[0].received();
    last_set(&mut received, "the client", |set| names(&set.clients) == ["a-pod"]).await;
    node.managers_serve().await;
    node.metrics_with("the outcomes", |text| text.contains("outcome=\"off\"")).await;
    let last = node.api.seen().borrow().slices.last().unwrap().clone();
    assert_eq!(last["spec"]["devices"][0]["capacity"]["seats"]["value"], "1");
    agent.end().await;
}
