//! The whole agent on a node whose GPUs are given by claims.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::api::{Kind, NODE, Seen};
use super::node::{Agent, Node, last_set, names, of_reason, pod, soon, uuid};
use crate::support::claims::{Driver, get_info_as_kubelet, uid};
use crate::support::kubelet::Kubelet;

/// A claim on a share of a GPU, reserved for the pod `<name>-pod`.
pub(super) fn claim(name: &str, gpu: u32, milli: u32, config: Value) -> Value {
    let mut parameters = json!({"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig"});
    parameters.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ml", "name": name, "uid": uid(name)}, "spec": {},
        "status": {
            "allocation": {"devices": {
                "results": [{
                    "driver": "gpu.sluice.dev", "pool": NODE, "device": uuid(gpu).to_lowercase(), "request": "gpu",
                    "shareID": format!("share-{name}"),
                    "consumedCapacity": {"milli": milli.to_string(), "memory": "1234567168", "seats": "1"},
                }],
                "config": [{"source": "FromClaim", "opaque": {"driver": "gpu.sluice.dev", "parameters": parameters}}],
            }},
            "reservedFor": [{"resource": "pods", "name": format!("{name}-pod"), "uid": format!("uid-{name}-pod")}],
        },
    })
}

/// The claim and its pod.
fn put(node: &Node, name: &str, gpu: u32, milli: u32, config: Value) {
    node.api.put(Kind::Pods, pod(&format!("{name}-pod"), &[]));
    node.api.put(Kind::Claims, claim(name, gpu, milli, config));
}

pub(super) const LABEL: &str = "sluice.dev/dra";

/// What the chart gives the agents with `dra.enabled`.
pub(super) fn flags(node: &Node) -> [String; 2] {
    ["--dra".to_owned(), format!("--kubelet-folder={}", node.kubelet_folder().display())]
}

/// An agent of a node that gives claims.
async fn start(node: &Node) -> (Agent, Driver) {
    node.api.label(LABEL, Some("true"));
    let agent = node.start_agent_with_flags("runtime", &flags(node)).await;
    (agent, Driver::registered(&node.kubelet_folder()).await)
}

/// Waits until the last stored slice satisfies the condition.
pub(super) async fn slice(
    seen: &mut watch::Receiver<Seen>,
    what: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Value {
    let wanted = seen.wait_for(|seen| seen.slices.last().is_some_and(&is_wanted));
    soon(what, wanted).await.unwrap().slices.last().unwrap().clone()
}

/// The first manager serves, and no pod is its client.
pub(super) async fn serves_no_client(node: &Node) {
    node.managers_serve().await;
    assert_eq!(node.managers[0].received().borrow().last().unwrap().clients, []);
}

pub(super) fn devices(slice: &Value) -> usize {
    slice["spec"]["devices"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_becomes_a_client_with_exact_limits_and_survives_restarts_of_kubelet_and_agent() {
    let node = Node::with_gpus(2).await;
    node.write_cdi(&[uuid(0), uuid(1)]);
    let (agent, mut driver) = start(&node).await;
    assert_eq!((driver.info.r#type.as_str(), driver.info.name.as_str()), ("DRAPlugin", "gpu.sluice.dev"));
    assert_eq!(driver.info.supported_versions, ["v1.DRAPlugin"]);
    put(&node, "third", 1, 300, json!({"limit": "0.8", "priority": "high"}));

    let given = driver.prepare("third").await.unwrap();
    let [device] = given.as_slice() else { panic!("{given:?}") };
    assert_eq!(
        (device.pool_name.as_str(), device.request_names.as_slice()),
        (NODE, ["gpu".to_owned()].as_slice())
    );
    assert_eq!(
        (device.device_name.clone(), device.share_id.as_deref()),
        (uuid(1).to_lowercase(), Some("share-third"))
    );
    assert_eq!(
        device.cdi_device_ids,
        [format!("nvidia.com/gpu={}", uuid(1)), "sluice.dev/library=current".to_owned()]
    );
    let edits = node.library_specification()["devices"][0]["containerEdits"].clone();
    let mounted: Vec<_> = edits["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["containerPath"].as_str().unwrap())
        .collect();
    assert!(mounted.contains(&"/etc/ld.so.preload") && mounted.contains(&"/run/sluice"), "{mounted:?}");
    assert_eq!(edits["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));

    let mut received = node.managers[1].received();
    let set = last_set(&mut received, "the client", |set| names(&set.clients) == ["third-pod"]).await;
    let client = &set.clients[0];
    assert_eq!((client.pod_uid.as_str(), client.namespace.as_str()), ("uid-third-pod", "ml"));
    assert_eq!((client.quota_ppm, client.limit_ppm, client.memory_bytes), (300_000, 800_000, 1_234_567_168));

    // Kubelet restarts: it registers the driver and prepares the claim again.
    let mut driver = Driver::registered(&node.kubelet_folder()).await;
    assert_eq!(driver.prepare("third").await.unwrap(), given);

    // The agent restarts. The claim is not asked for again: its object may be anything by then.
    agent.end().await;
    let (agent, mut driver) = start(&node).await;
    let is_another = |instance: &str| instance != set.agent_instance;
    let again = last_set(&mut received, "the client again", |set| is_another(&set.agent_instance)).await;
    assert_eq!(again.clients, set.clients);
    assert_eq!(driver.prepare("third").await.unwrap(), given);

    driver.unprepare("third").await;
    last_set(&mut received, "an empty set", |set| set.clients.is_empty()).await;
    // Also of a claim that is not prepared.
    driver.unprepare("third").await;
    agent.end().await;
    let (agent, _driver) = start(&node).await;
    node.managers_serve().await;
    assert_eq!(received.borrow().last().unwrap().clients, []);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_beyond_a_gpu_and_claims_with_mistakes_are_refused_with_the_reason() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let (agent, mut driver) = start(&node).await;
    for (name, milli) in [("a", 700), ("b", 300), ("c", 1)] {
        put(&node, name, 0, milli, json!({}));
    }
    driver.prepare("a").await.unwrap();
    driver.prepare("b").await.unwrap();
    let why = driver.prepare("c").await.unwrap_err();
    assert_eq!(why, format!("{} has 0.000 free, 0.001 asked", uuid(0)));
    // The room of one that has ended.
    driver.unprepare("b").await;
    driver.prepare("c").await.unwrap();

    put(&node, "wrong", 0, 300, json!({"limit": "0.1", "prio": "high"}));
    let why = driver.prepare("wrong").await.unwrap_err();
    assert!(
        why.contains("config.prio: no such key") && why.contains("config.limit: \"0.1\" is not allowed"),
        "{why}"
    );
    let why = driver.prepare("absent").await.unwrap_err();
    assert!(why.contains("cannot read the claim from the API server") && why.contains("not found"), "{why}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_of_a_pod_in_a_sandbox_is_refused_because_no_manager_would_see_its_processes() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let (agent, mut driver) = start(&node).await;
    let mut sandboxed = pod("a-pod", &[]);
    sandboxed["spec"]["runtimeClassName"] = json!("kata-qemu");
    node.api.put(Kind::Pods, sandboxed);
    node.api.put(Kind::Claims, claim("a", 0, 300, json!({})));
    let why = driver.prepare("a").await.unwrap_err();
    assert!(why.contains("spec.runtimeClassName: \"kata-qemu\" is not allowed"), "{why}");
    serves_no_client(&node).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpu_without_a_cdi_device_is_refused_and_no_client_remains() {
    let node = Node::with_gpus(1).await;
    let (agent, mut driver) = start(&node).await;
    put(&node, "a", 0, 300, json!({}));
    let why = driver.prepare("a").await.unwrap_err();
    assert!(why.contains("no CDI specification in") && why.contains(&uuid(0)), "{why}");
    serves_no_client(&node).await;
    node.write_cdi(&[uuid(0)]);
    driver.prepare("a").await.unwrap();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_that_was_deleted_while_the_agent_was_away_is_dropped() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let (agent, mut driver) = start(&node).await;
    for name in ["gone", "left"] {
        put(&node, name, 0, 300, json!({}));
        driver.prepare(name).await.unwrap();
    }
    agent.end().await;
    node.api.delete("gone");
    let (agent, _driver) = start(&node).await;
    last_set(&mut node.managers[0].received(), "one client", |set| names(&set.clients) == ["left-pod"]).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_published_again_after_a_deletion_and_follow_the_health_of_gpus() {
    let node = Node::with_gpus(2).await;
    let mut seen = node.api.seen();
    node.api.label(LABEL, Some("true"));
    let flags = [&flags(&node)[..], &["--gpu-look-every-ms=10".to_owned()]].concat();
    let agent = node.start_agent_with_flags("runtime", &flags).await;
    let stored = slice(&mut seen, "the slice", |slice| devices(slice) == 2).await;
    assert_eq!(stored["spec"]["pool"], json!({"name": NODE, "generation": 1, "resourceSliceCount": 1}));
    assert_eq!(
        (&stored["spec"]["driver"], &stored["spec"]["nodeName"]),
        (&json!("gpu.sluice.dev"), &json!(NODE))
    );
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "n");
    // As kubelet at its start.
    node.api.delete(&format!("{NODE}-gpu.sluice.dev"));
    slice(&mut seen, "the slice again", |slice| devices(slice) == 2).await;

    node.gpus.lose(1);
    let is_tainted =
        |slice: &Value| slice["spec"]["devices"][1]["taints"][0]["key"] == "gpu.sluice.dev/unhealthy";
    slice(&mut seen, "the taint", is_tainted).await;
    node.gpus.set_condition(1, sluice_node_agent::gpus::driver::Condition::Good);
    slice(&mut seen, "no taint", |slice| devices(slice) == 2 && !is_tainted(slice)).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_without_consumable_capacity_gets_no_devices_and_an_event() {
    let node = Node::with_gpus(1).await;
    node.api.become_old();
    let mut seen = node.api.seen();
    let (agent, _driver) = start(&node).await;
    slice(&mut seen, "the deletion", Value::is_null).await;
    let events = of_reason(&mut seen, "ClaimsUnavailable", 1).await;
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.contains("allowMultipleAllocations") && note.contains("Kubernetes 1.36"), "{note}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_offers_nothing_to_the_extender_and_registers_no_device_plugin() {
    let node = Node::with_gpus(1).await;
    // What an agent without claims has left on the node.
    let agent = node.start_agent().await;
    let mut object = node.api.node();
    let offers = |node: &Value| {
        !node["metadata"]["annotations"]["sluice.dev/gpus"].is_null()
            && !node["status"]["allocatable"]["sluice.dev/milli"].is_null()
    };
    soon("the amounts", object.wait_for(offers)).await.unwrap();
    agent.end().await;

    let kubelet = Kubelet::start(&node.plugin_folder());
    let (agent, _driver) = start(&node).await;
    let offers_nothing = |node: &Value| {
        node["metadata"]["annotations"]["sluice.dev/gpus"].is_null()
            && node["status"]["allocatable"]["sluice.dev/milli"].is_null()
    };
    soon("nothing for the extender", object.wait_for(offers_nothing)).await.unwrap();
    assert_eq!(object.borrow()["metadata"]["labels"]["sluice.dev/gpu.present"], "true");
    node.managers_serve().await;
    let is_ready = |status, _: &str| status == 200;
    node.page_with("/readyz", "readiness", is_ready).await;
    node.metrics_with("the path", |text| {
        text.contains("sluice_injection{node=\"node-1\",path=\"claims\"} 1")
    })
    .await;
    assert!(!kubelet.has_plugin());
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_whose_pods_have_claims_offers_no_slots_and_keeps_their_limits_when_claims_are_turned_off() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let (agent, mut driver) = start(&node).await;
    put(&node, "a", 0, 300, json!({}));
    driver.prepare("a").await.unwrap();
    let mut received = node.managers[0].received();
    let set = last_set(&mut received, "the client", |set| names(&set.clients) == ["a-pod"]).await;
    agent.end().await;

    let kubelet = Kubelet::start(&node.plugin_folder());
    let mut seen = node.api.seen();
    let agent = node.start_agent().await;
    let events = of_reason(&mut seen, "ClaimsKept", 1).await;
    let note = events[0]["note"].as_str().unwrap();
    assert!(
        note.contains("claims are off (dra.enabled)") && note.ends_with("These pods have claims: ml/a-pod"),
        "{note}"
    );
    let is_another = |instance: &str| instance != set.agent_instance;
    let again = last_set(&mut received, "the client again", |set| is_another(&set.agent_instance)).await;
    assert_eq!(again.clients, set.clients);
    node.managers_serve().await;
    // An agent that is never ready would stop the update of the others.
    node.page_with("/readyz", "readiness", |status, _| status == 200).await;
    node.metrics_with("the path", |text| {
        text.contains("sluice_injection{node=\"node-1\",path=\"closed\"} 1")
    })
    .await;
    let object = node.api.node();
    assert!(object.borrow()["metadata"]["annotations"]["sluice.dev/gpus"].is_null());
    assert!(!kubelet.has_plugin());
    agent.end().await;

    // With claims turned on again, kubelet's driver answers, and the node can be drained.
    let (agent, mut driver) = start(&node).await;
    driver.unprepare("a").await;
    agent.end().await;
    let agent = node.start_agent().await;
    let mut object = node.api.node();
    let offers = |node: &Value| !node["metadata"]["annotations"]["sluice.dev/gpus"].is_null();
    soon("the inventory", object.wait_for(offers)).await.unwrap();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_claims_of_deleted_pods_do_not_keep_a_node_on_claims() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let (agent, mut driver) = start(&node).await;
    put(&node, "a", 0, 300, json!({}));
    driver.prepare("a").await.unwrap();
    agent.end().await;
    // By force, while no driver answers: kubelet does not ask for the claim's end again. The claim is another pod's by then.
    node.api.delete("a-pod");

    let kubelet = Kubelet::start(&node.plugin_folder());
    let agent = node.start_agent().await;
    serves_no_client(&node).await;
    node.page_with("/readyz", "readiness", |status, _| status == 200).await;
    assert!(kubelet.has_plugin());
    agent.end().await;
    // Also for good.
    node.api.put(Kind::Pods, pod("a-pod", &[]));
    let (agent, _driver) = start(&node).await;
    serves_no_client(&node).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_deleted_before_device_slots_are_offered() {
    let node = Node::with_gpus(1).await;
    let mut seen = node.api.seen();
    let (agent, _driver) = start(&node).await;
    slice(&mut seen, "the slice", |slice| devices(slice) == 1).await;
    agent.end().await;

    node.api.label(LABEL, None);
    let object = node.api.node();
    let kubelet = Kubelet::start(&node.plugin_folder());
    let offers = |node: &Value| !node["metadata"]["annotations"]["sluice.dev/gpus"].is_null();
    let may_end = node.api.refuse_deletions();
    let refused = node.start_agent_with_flags("runtime", &flags(&node)).await.failure().await;
    assert!(refused.contains("cannot delete this node's ResourceSlice"), "{refused}");
    assert!(!kubelet.has_plugin() && !offers(&object.borrow()));
    may_end();
    let agent = node.start_agent_with_flags("runtime", &flags(&node)).await;
    slice(&mut seen, "the deletion", Value::is_null).await;
    node.managers_serve().await;
    node.page_with("/readyz", "readiness", |status, _| status == 200).await;
    assert!(kubelet.has_plugin());
    agent.end().await;
    // Also without devices.
    let agent = node.start_agent_with_flags("runtime", &flags(&node)).await;
    node.managers_serve().await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_cannot_read_the_label_does_not_start() {
    let node = Node::with_gpus(1).await;
    node.api.go_away();
    let why = node.start_agent_with_flags("runtime", &flags(&node)).await.failure().await;
    assert!(why.contains("cannot read whether this node has the label sluice.dev/dra"), "{why}");
    assert!(node.started(0).await.is_empty());
    // Without claims it needs no label: running pods get their managers again.
    let agent = node.start_agent().await;
    node.started(1).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubelets_authority_of_a_socket_path_is_accepted() {
    let node = Node::with_gpus(1).await;
    let (agent, _driver) = start(&node).await;
    let answer = get_info_as_kubelet(&node.kubelet_folder()).await;
    let has = |text: &[u8]| answer.windows(text.len()).any(|part| part == text);
    assert!(
        has(b"v1.DRAPlugin") && has(b"gpu.sluice.dev") && answer.ends_with(b"grpc-status\x010"),
        "{answer:?}"
    );
    agent.end().await;
}
