//! The whole agent beside a container runtime with NRI.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_node_agent::gpus::GpuDriver;
use sluice_node_agent::gpus::driver::DriverUnavailable;
use sluice_proto::nri::{Container, ContainerState, CreateContainerRequest, PodSandbox, SynchronizeRequest};

use super::node::{Node, last_set, of_reason, soon, uuid};
use crate::support::kubelet::Kubelet;
use crate::support::runtime::Runtime;

const QUOTA: (&str, &str) = ("quota", "0.3");

pub(super) fn sandbox(name: &str, annotations: &[(&str, &str)]) -> PodSandbox {
    let annotations: BTreeMap<_, _> =
        annotations.iter().map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned())).collect();
    let uid = format!("uid-{name}");
    PodSandbox { id: "s".into(), name: name.into(), namespace: "ml".into(), uid, annotations }
}

pub(super) fn request(pod: &PodSandbox, container: &str) -> CreateContainerRequest {
    let container = Container { id: "c".into(), name: container.into(), ..Container::default() };
    CreateContainerRequest { pod: Some(pod.clone()), container: Some(container) }
}

async fn metric(node: &Node, path: &str) {
    let line = format!("sluice_injection{{node=\"node-1\",path=\"{path}\"}} 1");
    node.metrics_with(&line, |text| text.contains(&line)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_gets_the_gpu_of_the_api_server_also_after_restarts_of_runtime_and_agent() {
    let node = Node::with_gpus(2).await;
    node.write_cdi(&[uuid(0), uuid(1)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let agent = node.start_agent_with("nri").await;
    let mut plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    assert_eq!(plugin.name, "sluice");
    metric(&node, "nri").await;
    let changed = of_reason(&mut node.api.seen(), "InjectionChanged", 1).await;
    assert!(changed[0]["note"].as_str().unwrap().contains("containerd v2.2.9"), "{changed:?}");

    let second = uuid(1);
    node.put("train", &[QUOTA, ("container", "main"), ("assigned-gpu", &second)]);
    // The agent refuses a container whose pod it does not learn of in time.
    let mut received = node.managers[1].received();
    let known = last_set(&mut received, "the client", |set| !set.clients.is_empty()).await;
    // The pod's own environment names another GPU; it counts for nothing.
    let pod = sandbox("train", &[QUOTA, ("container", "main"), ("assigned-gpu", &second)]);
    let mut asked = request(&pod, "main");
    asked.container.as_mut().unwrap().env = vec![format!("NVIDIA_VISIBLE_DEVICES={}", uuid(0))];
    let adjust = plugin.create(&asked).await.unwrap().adjust.unwrap();
    assert_eq!(adjust.cdi_devices.len(), 1);
    assert_eq!(adjust.cdi_devices[0].name, format!("nvidia.com/gpu={second}"));
    assert_eq!(adjust.mounts.len(), 3);
    let side = plugin.create(&request(&pod, "side")).await.unwrap().adjust.unwrap_or_default();
    assert_eq!(side, Default::default());
    let plain =
        plugin.create(&request(&sandbox("web", &[]), "main")).await.unwrap().adjust.unwrap_or_default();
    assert_eq!(plain, Default::default());

    // containerd restarts; a container was created without the plugin.
    drop(plugin);
    let ungoverned = Container {
        name: "main".into(),
        pod_sandbox_id: "s".into(),
        state: ContainerState::ContainerRunning.into(),
        ..Container::default()
    };
    let existing = SynchronizeRequest { pods: vec![pod.clone()], containers: vec![ungoverned], more: false };
    let mut plugin = runtime.next_plugin(existing).await;
    let reported = of_reason(&mut node.api.seen(), "NotInjected", 1).await;
    assert_eq!(reported[0]["regarding"]["uid"], "uid-train");
    assert_eq!(plugin.create(&request(&pod, "main")).await.unwrap().adjust.unwrap().cdi_devices.len(), 1);

    agent.end().await;
    let agent = node.start_agent_with("nri").await;
    let mut plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    last_set(&mut received, "it again", |set| set.agent_instance != known.agent_instance).await;
    assert_eq!(plugin.create(&request(&pod, "main")).await.unwrap().adjust.unwrap().cdi_devices.len(), 1);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_pod_is_refused_before_the_runtime_gives_up() {
    let node = Node::with_gpus(1).await;
    node.write_cdi(&[uuid(0)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let agent = node.start_agent_with("nri").await;
    let mut plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    let pod = sandbox("late", &[QUOTA, ("container", "main"), ("assigned-gpu", &uuid(0))]);
    let refused = plugin.create(&request(&pod, "main")).await.unwrap_err();
    assert!(refused.message.contains("does not know the GPU of pod uid-late"), "{refused:?}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_nri_says_so_and_offers_no_slots_or_falls_back() {
    let node = Node::with_gpus(1).await;
    let mut kubelet = Kubelet::start(&node.plugin_folder());
    let agent = node.start_agent_with("nri").await;
    metric(&node, "none").await;
    let events = of_reason(&mut node.api.seen(), "InjectionUnavailable", 1).await;
    assert!(events[0]["note"].as_str().unwrap().contains("nri.sock"), "{events:?}");
    let is_unready = |_, missing: &str| missing.contains("containers cannot get GPUs");
    node.page_with("/readyz", "the missing NRI", is_unready).await;
    assert!(!kubelet.has_plugin());
    // NRI appears.
    node.write_cdi(&[uuid(0)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let _plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    assert_eq!(kubelet.next_plugin().await.request.resource_name, "sluice.dev/gpu");
    of_reason(&mut node.api.seen(), "InjectionChanged", 1).await;
    agent.end().await;
    drop(runtime);
    std::fs::remove_file(node.nri_socket()).unwrap();

    let agent = node.start_agent_with("auto").await;
    metric(&node, "runtime").await;
    let events = of_reason(&mut node.api.seen(), "InjectionChanged", 2).await;
    assert!(events[1]["note"].as_str().unwrap().contains("no NRI: "), "{events:?}");
    agent.end().await;
}

async fn proof(node: &Node, outcome: &str) {
    let line = format!("sluice_injection_proof{{node=\"node-1\",outcome=\"{outcome}\"}} 1");
    node.metrics_with(&line, |text| text.contains(&line)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_without_a_driver_offers_no_slots_and_says_why_until_the_driver_answers() {
    let node = Node::with_gpus(1).await;
    let mut kubelet = Kubelet::start(&node.plugin_folder());
    let healthy = node.gpus.inventory();
    let why = "libnvidia-ml.so.1 cannot be loaded";
    node.gpus.set_answer(Err(DriverUnavailable(why.into())));
    let agent = node.start_agent_with_flags("runtime", &["--gpu-look-every-ms=10".to_owned()]).await;
    let events = of_reason(&mut node.api.seen(), "InjectionUnavailable", 1).await;
    let note = events[0]["note"].as_str().unwrap();
    assert_eq!(events[0]["regarding"]["kind"], "Node");
    assert!(note.contains(why) && note.contains("NVIDIA_VISIBLE_DEVICES"), "{note}");
    proof(&node, "not-in-agent").await;
    let has_reason = |status, missing: &str| status == 503 && missing.contains(why);
    node.page_with("/readyz", "the reason", has_reason).await;
    assert!(!kubelet.has_plugin());

    node.gpus.set_answer(healthy);
    assert_eq!(kubelet.next_plugin().await.request.resource_name, "sluice.dev/gpu");
    proof(&node, "proven").await;
    let mut object = node.api.node();
    let is_shown =
        |object: &Value| object["metadata"]["annotations"]["sluice.dev/injection"] == "runtime: proven";
    soon("the annotation", object.wait_for(is_shown)).await.unwrap();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpu_without_a_cdi_device_is_reported_while_others_get_theirs() {
    let node = Node::with_gpus(2).await;
    node.write_cdi(&[uuid(0)]);
    let runtime = Runtime::listen(&node.nri_socket());
    let agent = node.start_agent_with("nri").await;
    let _plugin = runtime.next_plugin(SynchronizeRequest::default()).await;
    let events = of_reason(&mut node.api.seen(), "InjectionUnavailable", 1).await;
    assert!(events[0]["note"].as_str().unwrap().contains(&uuid(1)), "{events:?}");
    metric(&node, "nri").await;
    agent.end().await;
}
