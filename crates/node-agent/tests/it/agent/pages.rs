//! What the agent publishes: metrics, state page, node metadata, events on unhealthy GPUs.

use serde_json::{Value, json};
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::Violation;

use super::api::{Kind, NODE};
use super::manager::Behaviour;
use super::node::{Node, last_set, names, of_reason, soon, uuid};

/// The value of a series.
pub(super) fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| {
        line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label))
    };
    text.lines().find(is_it)?.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_each_client_and_drop_those_that_left() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    node.put(
        "train",
        &[
            ("quota", "0.25"),
            ("limit", "0.5"),
            ("memory", "2Gi"),
            ("priority", "high"),
            ("assigned-gpu", &uuid(1)),
        ],
    );
    let mut received = node.managers[1].received();
    last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    node.managers_serve().await;
    let gpu = format!("gpu=\"{}\"", uuid(1));
    let answers = |text: &str| value(text, "sluice_manager_up", &[&gpu]) == Some(1.0);
    let text = node.metrics_with("the manager answers", answers).await;
    assert!(text.contains("\nprocess_open_fds ") && text.contains("\nprocess_cpu_seconds_total "), "{text}");
    let labels = ["namespace=\"ml\"", "pod=\"train\"", "container=\"main\"", &gpu, "node=\"node-1\""];
    let expected = [
        ("sluice_client_gpu_seconds_total", 2.5),
        ("sluice_client_gpu_share_ratio", 0.25),
        ("sluice_client_quota_ratio", 0.25),
        ("sluice_client_limit_ratio", 0.5),
        ("sluice_client_memory_used_bytes", 12.0),
        ("sluice_client_memory_limit_bytes", 2_147_483_648.0),
        ("sluice_client_memory_peak_bytes", 13.0),
        ("sluice_client_energy_joules_total", 40.5),
        ("sluice_client_memory_overhead_bytes", 38.0),
        ("sluice_client_memory_denied_total", 14.0),
        ("sluice_client_memory_resident_bytes", 46.0),
        ("sluice_client_suspended", 0.0),
        ("sluice_client_memory_swapped_bytes", 47.0),
        ("sluice_client_memory_moved_bytes_total", 48.0),
        ("sluice_client_memory_waited_seconds_total", 49.5),
        ("sluice_client_grants_total", 15.0),
        ("sluice_client_wait_seconds_total", 0.5),
        ("sluice_client_delayed_seconds_total", 0.75),
        ("sluice_client_hold_and_wait_seconds_total", 0.625),
        ("sluice_client_adopted_processes", 32.0),
        ("sluice_client_step_seconds_count", 41.0),
        ("sluice_client_step_seconds_sum", 0.25),
        ("sluice_client_request_seconds_count", 43.0),
        ("sluice_client_request_seconds_sum", 0.75),
        ("sluice_client_slo_violations_total", 44.0),
        ("sluice_client_unobserved_steps_total", 45.0),
        ("sluice_client_slo_seconds", 0.0),
    ];
    for (name, wanted) in expected {
        assert_eq!(value(&text, name, &labels), Some(wanted), "{name}\n{text}");
    }
    let with = |more: &[&'static str]| [labels.as_slice(), more].concat();
    assert_eq!(
        value(&text, "sluice_client_bypassed_launches_total", &with(&["reason=\"graph\""])),
        Some(16.0)
    );
    let short = value(&text, "sluice_client_request_seconds_bucket", &with(&["le=\"0.001\""]));
    assert_eq!(short, Some(42.0));
    let p99 = value(&text, "sluice_client_request_quantile_seconds", &with(&["quantile=\"0.99\""]));
    assert_eq!(p99, Some(0.375));
    let unsteered = value(&text, "sluice_client_unsteered_processes", &with(&["reason=\"not_permitted\""]));
    assert_eq!(unsteered, Some(33.0));
    assert_eq!(value(&text, "sluice_client_violations_total", &with(&["kind=\"time_slice\""])), Some(37.0));
    assert_eq!(value(&text, "sluice_client_stopped_processes", &with(&[])), Some(39.0));
    assert_eq!(
        value(&text, "sluice_client_info", &with(&["class=\"high\"", "priority=\"high\""])),
        Some(1.0)
    );
    // Its process runs in another of the pod's containers, as the container id shows.
    assert_eq!(value(&text, "sluice_client_processes", &["container=\"side\"", "pod=\"train\""]), Some(1.0));
    assert_eq!(value(&text, "sluice_gpu_quota_assigned_ratio", &[&gpu]), Some(0.25));
    assert_eq!(value(&text, "sluice_gpu_info", &[&gpu, "model=\"Fake GPU\""]), Some(1.0));
    assert_eq!(value(&text, "sluice_manager_up", &[&gpu]), Some(1.0));
    let scheduling = [
        ("sluice_turns_total", &[][..], 21.0),
        ("sluice_hand_overs_forced_total", &[], 22.0),
        ("sluice_steering_given_up_total", &[], 23.0),
        ("sluice_control_descriptors_refused_total", &[], 24.0),
        ("sluice_controls_total", &["control=\"stop\"", "outcome=\"done\""], 25.0),
        ("sluice_controls_total", &["control=\"stop\"", "outcome=\"failed\""], 26.0),
        ("sluice_announcements_refused_total", &[], 29.0),
        ("sluice_preemptions_total", &["level=\"turn\"", "outcome=\"timeout\""], 31.0),
        ("sluice_level", &["level=\"turn\""], 27.0),
        ("sluice_level", &["level=\"token\""], 28.0),
        ("sluice_preemption_seconds_count", &["level=\"turn\""], 47.0),
        ("sluice_preemption_seconds_bucket", &["level=\"turn\"", "le=\"0.001\""], 46.0),
        ("sluice_hand_off_seconds_sum", &["level=\"token\""], 0.5),
    ];
    for (name, more, wanted) in scheduling {
        let labels = [&[gpu.as_str(), "node=\"node-1\""], more].concat();
        assert_eq!(value(&text, name, &labels), Some(wanted), "{name} {more:?}\n{text}");
    }
    let of_manager = [
        ("sluice_manager_event_loop_seconds_bucket", &["le=\"0.001\""][..], 34.0),
        ("sluice_manager_event_loop_seconds_count", &[], 35.0),
        ("sluice_manager_event_loop_seconds_sum", &[], 0.5),
        ("sluice_manager_log_lines_dropped_total", &[], 36.0),
        ("sluice_gpu_idle_energy_joules_total", &[], 39.5),
        ("sluice_manager_memory_readings_total", &["outcome=\"complete\""], 37.0),
        ("sluice_manager_policy_reloads_total", &["outcome=\"refused\""], 38.0),
    ];
    for (name, more, wanted) in of_manager {
        let labels = [&[gpu.as_str(), "node=\"node-1\""], more].concat();
        assert_eq!(value(&text, name, &labels), Some(wanted), "{name}\n{text}");
    }
    // The kernel reports these of the manager's process.
    for name in ["resident_memory_bytes", "open_fds", "max_fds", "threads"] {
        let name = format!("sluice_manager_{name}");
        assert!(value(&text, &name, &[&gpu]) > Some(0.0), "{name}\n{text}");
    }
    assert!(text.contains("\nsluice_manager_cpu_seconds_total{"), "{text}");
    assert!(text.contains("sluice_device_plugin_allocate_seconds"), "{text}");

    node.api.delete("train");
    last_set(&mut received, "an empty set", |set| set.clients.is_empty() && set.generation > 1).await;
    let text = node.metrics_with("the manager answers", answers).await;
    assert!(!text.contains("pod=\"train\""), "{text}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_manager_costs_only_its_own_series() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    for (index, manager) in (0..).zip(&node.managers) {
        node.put(&format!("pod-{index}"), &[("quota", "0.5"), ("assigned-gpu", &uuid(index))]);
        last_set(&mut manager.received(), "the client", |set| set.clients.len() == 1).await;
    }
    node.managers_serve().await;
    node.managers[0].set_behaviour(Behaviour::Hangs);
    let up = |text: &str, index| value(text, "sluice_manager_up", &[&uuid(index)]);
    let only_the_second_is_up = |text: &str| (up(text, 0), up(text, 1)) == (Some(0.0), Some(1.0));
    let text = node.metrics_with("one manager hangs", only_the_second_is_up).await;
    assert!(!text.contains("pod=\"pod-0\"") && text.contains("pod=\"pod-1\""), "{text}");
    let reports_it = |state: &Value| {
        state["gpus"][0]["error"].as_str().is_some_and(|error| error.contains("did not answer"))
    };
    node.state_with("the hanging manager", reports_it).await;
    node.managers[0].set_behaviour(Behaviour::Normal);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_page_shows_wanted_clients_and_those_in_force() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    node.put("train", &[("quota", "0.25"), ("priority", "0"), ("slo", "5ms"), ("assigned-gpu", &uuid(0))]);
    last_set(&mut node.managers[0].received(), "the client", |set| set.clients.len() == 1).await;
    let is_in_force = |state: &Value| !state["gpus"][0]["in_force"][0].is_null();
    let state = node.state_with("the client in force", is_in_force).await;
    let gpu = &state["gpus"][0];
    // A quarter of the usable memory: 80 GiB without 0.5 GiB for each of ten device slots.
    let wanted = json!({
        "pod_uid": "uid-train", "namespace": "ml", "pod": "train", "class": "latency-critical", "quota_ppm": 250_000,
        "limit_ppm": 1_000_000, "memory_bytes": (75_u64 << 30) / 4, "overcommit": false, "suspended": false,
        "slo_ns": 5_000_000,
    });
    assert_eq!(gpu["wanted"], json!([wanted]));
    for (key, limit) in wanted.as_object().unwrap() {
        assert_eq!(&gpu["in_force"][0][key], limit, "{key}");
    }
    assert_eq!(gpu["in_force"][0]["processes"][0]["container"], "side");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_metadata_is_written_and_restored_after_a_wipe() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    let mut seen = node.api.node();
    let inventory = |object: &Value| {
        let annotation = object["metadata"]["annotations"]["sluice.dev/gpus"].as_str()?;
        NodeInventory::from_annotation(annotation).ok()
    };
    let node_object =
        soon("node metadata", seen.wait_for(|node| inventory(node).is_some())).await.unwrap().clone();
    assert_eq!(inventory(&node_object).unwrap().gpus.len(), 2);
    assert_eq!(node_object["metadata"]["labels"]["sluice.dev/gpu.model"], "Fake-GPU");
    let bare = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "n", "labels": {"zone": "a"}}});
    node.api.put(Kind::Nodes, bare);
    let is_whole = |object: &Value| {
        inventory(object).is_some() && object["metadata"]["labels"]["sluice.dev/gpu.count"] == "2"
    };
    let node_object = soon("node metadata again", seen.wait_for(is_whole)).await.unwrap().clone();
    assert_eq!(node_object["metadata"]["labels"]["zone"], "a");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unhealthy_gpu_causes_events_on_the_node_and_on_its_pods() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    for (name, index) in [("mine", 0), ("other", 1)] {
        node.put(name, &[("quota", "0.5"), ("assigned-gpu", &uuid(index))]);
    }
    for manager in &node.managers {
        last_set(&mut manager.received(), "the client", |set| set.clients.len() == 1).await;
    }
    node.gpus.lose(0);
    let mut seen = node.api.seen();
    let events = of_reason(&mut seen, "GpuUnhealthy", 2).await;
    let about: Vec<_> = events.iter().map(|event| event["regarding"]["name"].as_str().unwrap()).collect();
    assert_eq!(about, [NODE, "mine"]);
    assert!(events.iter().all(|event| event["note"].as_str().unwrap().contains(&uuid(0))), "{events:?}");
    let mut node_objects = node.api.node();
    let is_unhealthy = |object: &Value| {
        let annotation = object["metadata"]["annotations"]["sluice.dev/gpus"].as_str().unwrap_or_default();
        NodeInventory::from_annotation(annotation).is_ok_and(|inventory| !inventory.gpus[0].healthy)
    };
    soon("the annotation", node_objects.wait_for(is_unhealthy)).await.unwrap();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_probe_lists_what_is_missing() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    assert_eq!(node.get("/livez").await.0, 200);
    last_set(&mut node.managers[0].received(), "a set", |_| true).await;
    let is_one_line = |_, text: &str| text.lines().count() == 1;
    let (status, text) = node.page_with("/readyz", "only the plugin is missing", is_one_line).await;
    assert_eq!((status, text.as_str()), (503, "kubelet has not accepted the registration of this agent\n"));
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_beside_half_open_connections() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    let _half_open = node.half_open(150).await;
    assert_eq!(node.probe("/livez").await.0, 200);
    assert_eq!(node.get("/livez").await.0, 200);
    assert_eq!(node.probe("/metrics").await.0, 404, "the listener for probes serves nothing else");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_for_all_addresses_do_not_have_the_state_of_pods() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    assert_eq!(node.get("/state").await.0, 404);
    assert_eq!(node.probe("/state").await.0, 404);
    let has_its_gpu = |state: &Value| state["gpus"].as_array().unwrap().len() == 1;
    node.state_with("the page at its own address", has_its_gpu).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn violation_becomes_an_event_on_its_pod() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    node.put("train", &[("quota", "0.25"), ("assigned-gpu", &uuid(1))]);
    let mut received = node.managers[1].received();
    last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    let violation = |pod: &str| Violation {
        pod_uid: format!("uid-{pod}"),
        kind: "time_slice".into(),
        pid: 41,
        note: "a slice of 1000000 \u{b5}s".into(),
        evict: false,
    };
    // A pod that has ended meanwhile is left out.
    node.managers[1].find_violation(violation("other"));
    node.managers[1].find_violation(violation("train"));
    let event = of_reason(&mut node.api.seen(), "LimitViolated", 1).await.remove(0);
    assert_eq!((&event["regarding"]["uid"], &event["type"]), (&json!("uid-train"), &json!("Warning")));
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("time_slice") && note.contains(&uuid(1)) && note.contains("process 41"), "{note}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_that_its_manager_wants_evicted_is_evicted_once_the_api_server_allows_it() {
    let node = Node::with_gpus(1).await;
    let agent = node.start_agent().await;
    for (pod, grace_seconds) in [("train", 3600), ("serve", 5)] {
        let mut object = super::node::pod(pod, &[("quota", "0.25"), ("assigned-gpu", &uuid(0))]);
        object["spec"]["terminationGracePeriodSeconds"] = json!(grace_seconds);
        node.api.put(Kind::Pods, object);
    }
    last_set(&mut node.managers[0].received(), "both clients", |set| set.clients.len() == 2).await;
    let (kind, note) = ("stopped_group_ran".to_owned(), "it ran".to_owned());
    let violation = Violation { pod_uid: "uid-train".into(), kind, pid: 41, note, evict: true };
    // As a PodDisruptionBudget does.
    node.api.refuse_evictions(1);
    node.managers[0].find_violation(violation.clone());
    let refused = of_reason(&mut node.api.seen(), "EvictionRefused", 1).await.remove(0);
    assert!(refused["note"].as_str().unwrap().contains("disruption budget"), "{refused}");
    // While it is being evicted.
    node.managers[0].find_violation(violation.clone());
    let evicted = of_reason(&mut node.api.seen(), "EvictedForViolation", 1).await.remove(0);
    assert_eq!(evicted["regarding"]["uid"], json!("uid-train"));
    let reason = evicted["note"].as_str().unwrap();
    assert!(reason.contains("stopped_group_ran") && reason.contains("it ran"), "{reason}");
    let asked = node.api.seen().borrow().evictions.clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (path, body) in asked {
        assert_eq!(path, "/api/v1/namespaces/ml/pods/train/eviction");
        assert_eq!(body["deleteOptions"]["preconditions"]["uid"], json!("uid-train"));
        assert_eq!(body["deleteOptions"]["gracePeriodSeconds"], json!(30), "the tenant's own is an hour");
    }
    node.managers[0].find_violation(Violation { pod_uid: "uid-serve".into(), ..violation });
    let mut seen = node.api.seen();
    let last = soon("the third request", seen.wait_for(|seen| seen.evictions.len() == 3)).await.unwrap();
    assert_eq!(last.evictions[2].1["deleteOptions"]["gracePeriodSeconds"], json!(5), "its own is shorter");
    agent.end().await;
}

/// The agent has started anew while the API server was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_that_is_wanted_before_the_pods_are_listed_is_not_lost() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.25"), ("assigned-gpu", &uuid(0))]);
    let (kind, note) = ("stopped_group_ran".to_owned(), "it ran".to_owned());
    node.managers[0].find_violation(Violation {
        pod_uid: "uid-train".into(),
        kind,
        pid: 41,
        note,
        evict: true,
    });
    node.api.go_away();
    let agent = node.start_agent().await;
    let mut seen = node.api.seen();
    soon("the agent asks in vain", seen.wait_for(|seen| seen.turned_away >= 4)).await.unwrap();
    node.api.come_back();
    of_reason(&mut node.api.seen(), "EvictedForViolation", 1).await;
    agent.end().await;
}
