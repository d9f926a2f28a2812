//! The device plugin beside a fake kubelet.

use crate::fake_gpus::gpu;
use crate::support::kubelet::Kubelet;
use crate::support::node::Node;
use sluice_node_agent::device_plugin::Error;
use sluice_proto::deviceplugin::{DevicePluginOptions, Empty, Mount, PreStartContainerRequest};
use std::fs;
use std::time::{Duration, Instant};
use tonic::Code;

/// A registration takes milliseconds. An agent that misses the event tries again only after its longest delay, 10 s.
const AGAIN: Duration = Duration::from_secs(9);

#[tokio::test]
async fn plugin_registers_and_lists_its_slots_at_once() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    agent.is_registered(true).await;

    let options =
        DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: false };
    let request = &plugin.request;
    assert_eq!((request.version.as_str(), request.endpoint.as_str()), ("v1beta1", "sluice.sock"));
    assert_eq!((request.resource_name.as_str(), request.options), ("sluice.dev/gpu", Some(options)));
    assert_eq!(plugin.client.get_device_plugin_options(Empty {}).await.unwrap().into_inner(), options);
    plugin.client.pre_start_container(PreStartContainerRequest::default()).await.unwrap();

    let list = plugin.listen().await.next().await.unwrap();
    let expected: Vec<_> = (0..8).map(|n| (format!("sluice-seat-{n}"), "Healthy".to_owned())).collect();
    assert_eq!(list, expected);
    let metrics = agent.scrape();
    for line in [
        "sluice_device_plugin_registrations_total{outcome=\"ok\"} 1",
        "sluice_device_plugin_registered 1",
        "sluice_device_plugin_seats{health=\"healthy\"} 8",
        "sluice_device_plugin_seats{health=\"unhealthy\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn slots_change_only_with_the_health_of_gpus() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let _agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let (mut one, mut other) = (plugin.listen().await, plugin.listen().await);
    assert_eq!([one.next_count().await, other.next_count().await], [(8, 8), (8, 8)]);

    node.gpus.send_modify(|inventory| inventory.gpus[0].nvlink.push("GPU-1".into()));
    node.set_health(0, false);
    assert_eq!([one.next_count().await, other.next_count().await], [(8, 4), (8, 4)]);
    node.set_health(1, false);
    assert_eq!(one.next_count().await, (8, 0));
    node.set_health(0, true);
    node.set_health(1, true);
    while one.next_count().await != (8, 8) {}
    node.gpus.send_modify(|inventory| inventory.gpus.push(gpu(2)));
    assert_eq!(one.next_count().await, (12, 12));
}

#[tokio::test]
async fn container_gets_library_preload_file_and_sockets_and_no_limits() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let _agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;

    let answer = plugin.allocate(&[&["sluice-seat-7", "sluice-seat-0"], &["sluice-seat-3"]]).await.unwrap();
    let (version, host) = (&node.library.version, node.library.folder.display());
    let mount =
        |host_path: String, container_path: String| Mount { container_path, host_path, read_only: true };
    let mounts = [
        mount(host.to_string(), format!("/usr/lib/sluice/{version}")),
        mount(format!("{host}/ld.so.preload"), "/etc/ld.so.preload".into()),
        mount("/run/sluice".into(), "/run/sluice".into()),
    ];
    assert_eq!(answer.container_responses.len(), 2);
    for container in answer.container_responses {
        assert_eq!(container.mounts, mounts);
        assert!(container.envs.is_empty() && container.devices.is_empty());
        assert!(container.annotations.is_empty() && container.cdi_devices.is_empty());
    }
    let preload = fs::read_to_string(node.library.preload_file()).unwrap();
    assert_eq!(preload, format!("/usr/lib/sluice/{version}/libsluice.so\n"));
}

#[tokio::test]
async fn environment_contains_only_the_behaviour_on_manager_loss() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let _agent = node.start_agent_with(node.provision().on_manager_loss("wait"));
    let mut plugin = kubelet.next_plugin().await;
    let answer = plugin.allocate(&[&["sluice-seat-0"]]).await.unwrap();
    let environment: Vec<_> = answer.container_responses[0].envs.iter().collect();
    assert_eq!(environment, [(&"SLUICE_ON_MANAGER_LOSS".to_owned(), &"wait".to_owned())]);
}

#[tokio::test]
async fn unhealthy_and_unknown_slots_are_refused_with_the_reason() {
    let node = Node::new();
    node.set_health(0, false);
    let mut kubelet = Kubelet::start(&node.folder);
    let _agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let cases: [(&[&[&str]], &str); 5] = [
        (
            &[&["sluice-seat-8"]],
            "\"sluice-seat-8\" is no device slot of this node, which has 8 (sluice-seat-0 to sluice-seat-<n>)",
        ),
        (
            &[&["sluice-seat-0"], &["GPU-0"]],
            "\"GPU-0\" is no device slot of this node, which has 8 (sluice-seat-0 to sluice-seat-<n>)",
        ),
        (
            &[&["sluice-seat-4"]],
            "sluice-seat-4 is unhealthy: only 4 of this node's 8 device slots have a healthy GPU",
        ),
        (&[&["sluice-seat-1", "sluice-seat-1"]], "sluice-seat-1 is requested twice"),
        (&[&[]], "a container request names no device slot"),
    ];
    for (containers, reason) in cases {
        let refusal = plugin.allocate(containers).await.unwrap_err();
        assert_eq!((refusal.code(), refusal.message()), (Code::InvalidArgument, reason));
    }
    assert!(plugin.allocate(&[&["sluice-seat-3"]]).await.is_ok(), "the plugin still answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_concurrent_allocations_are_all_answered() {
    let node = Node::new();
    node.gpus.send_modify(|inventory| inventory.seats_per_gpu = 50);
    let mut kubelet = Kubelet::start(&node.folder);
    let agent = node.start_agent();
    let plugin = kubelet.next_plugin().await;
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let mut plugin = crate::support::kubelet::Plugin {
                request: plugin.request.clone(),
                client: plugin.client.clone(),
            };
            tokio::spawn(async move { plugin.allocate(&[&[format!("sluice-seat-{n}").as_str()]]).await })
        })
        .collect();
    for task in tasks {
        let answer = crate::support::soon("an answer", task).await.unwrap().unwrap();
        assert_eq!(answer.container_responses[0].mounts.len(), 3);
    }
    assert!(agent.scrape().contains("sluice_device_plugin_allocate_seconds_count 100"));
}

#[tokio::test]
async fn plugin_registers_with_a_restarted_kubelet() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let mut listening = plugin.listen().await;
    assert_eq!(listening.next_count().await, (8, 8));

    for _ in 0..3 {
        drop((listening, plugin));
        kubelet.kill().await;
        agent.is_registered(false).await;
        let started = Instant::now();
        kubelet = Kubelet::start(&node.folder);
        plugin = kubelet.next_plugin().await;
        agent.is_registered(true).await;
        let took = started.elapsed();
        assert!(took < AGAIN, "{took:?}");
        listening = plugin.listen().await;
        assert_eq!(listening.next_count().await, (8, 8));
        assert!(plugin.allocate(&[&["sluice-seat-5"]]).await.is_ok());
    }
    node.set_health(0, false);
    assert_eq!(listening.next_count().await, (8, 4));
}

#[tokio::test]
async fn kubelet_restart_without_stream_end_is_noticed_by_its_socket() {
    let node = Node::new();
    let mut first = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let _never_listened_nor_hung_up = first.next_plugin().await;
    agent.is_registered(true).await;
    let mut second = Kubelet::start(&node.folder);
    let mut plugin = second.next_plugin().await;
    assert!(plugin.allocate(&[&["sluice-seat-5"]]).await.is_ok());
}

#[tokio::test]
async fn new_kubelet_that_keeps_our_socket_gets_a_registration() {
    let node = Node::new();
    let mut first = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let mut forgotten = first.next_plugin().await;
    let mut listening = forgotten.listen().await;
    assert_eq!(listening.next_count().await, (8, 8));
    agent.is_registered(true).await;
    let mut second = Kubelet::start_beside_plugins(&node.folder);
    let mut plugin = second.next_plugin().await;
    assert_eq!(
        listening.next().await,
        None,
        "the old kubelet's stream ends before the plugin registers with the new one"
    );
    assert_eq!(plugin.listen().await.next_count().await, (8, 8));
}

#[tokio::test]
async fn plugin_waits_for_a_later_kubelet() {
    let node = Node::new();
    let mut agent = node.start_agent();
    crate::support::until("the plugin's socket", || node.socket().exists()).await;
    let mut kubelet = Kubelet::start(&node.folder);
    kubelet.next_plugin().await;
    agent.is_registered(true).await;
}

#[tokio::test]
async fn registration_is_retried_after_refusals() {
    let node = Node::new();
    let mut kubelet = Kubelet::start_refusing(&node.folder, 3);
    let mut agent = node.start_agent();
    kubelet.next_plugin().await;
    agent.is_registered(true).await;
    let metrics = agent.scrape();
    for line in ["registrations_total{outcome=\"error\"} 3", "registrations_total{outcome=\"ok\"} 1"] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn stale_kubelet_socket_does_not_count_as_kubelet() {
    let node = Node::new();
    Kubelet::start(&node.folder).kill().await;
    let mut agent = node.start_agent();
    let failed = "sluice_device_plugin_registrations_total{outcome=\"error\"} 2";
    crate::support::until("two failed attempts", || agent.scrape().contains(failed)).await;
    let mut kubelet = Kubelet::start(&node.folder);
    kubelet.next_plugin().await;
    agent.is_registered(true).await;
}

#[tokio::test]
async fn plugin_registers_again_after_kubelet_closed_its_streams() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let _agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let (mut one, mut other) = (plugin.listen().await, plugin.listen().await);
    assert_eq!((one.next_count().await, other.next_count().await), ((8, 8), (8, 8)));
    drop((one, other, plugin));
    let mut plugin = kubelet.next_plugin().await;
    assert_eq!(plugin.listen().await.next_count().await, (8, 8));
}

#[tokio::test]
async fn removed_plugin_socket_is_created_again() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let _first = kubelet.next_plugin().await;
    agent.is_registered(true).await;
    fs::remove_file(node.socket()).unwrap();
    let mut plugin = kubelet.next_plugin().await;
    assert!(plugin.allocate(&[&["sluice-seat-5"]]).await.is_ok());
}

#[tokio::test]
async fn killed_agent_returns_with_the_same_slots() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let before = plugin.listen().await.next().await;
    agent.kill().await;
    assert!(node.socket().exists(), "what a killed agent leaves behind");
    let _agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    assert_eq!(plugin.listen().await.next().await, before);
    assert!(plugin.allocate(&[&["sluice-seat-5"]]).await.is_ok());
}

#[tokio::test]
async fn stop_ends_streams_and_removes_the_socket() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    agent.is_registered(true).await;
    let mut listening = plugin.listen().await;
    assert_eq!(listening.next_count().await, (8, 8));
    let readiness = agent.registered.clone();
    agent.stop().await.unwrap();
    assert_eq!(listening.next().await, None);
    assert!(!node.socket().exists() && !*readiness.borrow());
}

#[tokio::test]
async fn second_agent_takes_over_and_the_first_reports_it() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let first = node.start_agent();
    kubelet.next_plugin().await;
    let _second = node.start_agent();
    let mut plugin = kubelet.next_plugin().await;
    let error = first.end().await.unwrap_err();
    assert!(matches!(&error, Error::TakenOver(path) if *path == node.socket()), "{error}");
    assert!(plugin.allocate(&[&["sluice-seat-5"]]).await.is_ok());
}

#[tokio::test]
async fn plugin_ends_with_the_inventory() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let agent = node.start_agent();
    kubelet.next_plugin().await;
    drop(node.gpus);
    let error = agent.end().await.unwrap_err();
    assert!(matches!(error, Error::NoInventory), "{error}");
}

#[tokio::test]
async fn foreign_file_with_the_sockets_name_is_kept() {
    let node = Node::new();
    fs::write(node.socket(), "precious").unwrap();
    let error = node.start_agent().end().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("device plugin: {} is no socket: move it away", node.socket().display())
    );
    assert_eq!(fs::read_to_string(node.socket()).unwrap(), "precious");
}

#[tokio::test]
async fn removed_kubelet_folder_is_reported() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.folder);
    let mut agent = node.start_agent();
    kubelet.next_plugin().await;
    agent.is_registered(true).await;
    fs::rename(&node.folder, node.folder.with_extension("old")).unwrap();
    let error = agent.end().await.unwrap_err();
    assert!(matches!(error, Error::FolderGone(_)), "{error}");
}
