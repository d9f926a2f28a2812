use super::*;
use crate::test_cluster::{GIB, cluster, gpu_mut, node, pod, running};
use crate::text::layout;

/// Lines of a node agent's page.
const AGENT: &str = "\
sluice_gpu_info{gpu=\"GPU-a-0\",index=\"0\",model=\"NVIDIA H100\",node=\"a\",numa=\"\",pci=\"x\"} 1
sluice_gpu_healthy{gpu=\"GPU-a-0\",node=\"a\"} 1
sluice_gpu_memory_usable_bytes{gpu=\"GPU-a-0\",node=\"a\"} 85899345920
sluice_gpu_quota_assigned_ratio{gpu=\"GPU-a-0\",node=\"a\"} 0.5
sluice_gpu_memory_assigned_bytes{gpu=\"GPU-a-0\",node=\"a\"} 21474836480
sluice_level{gpu=\"GPU-a-0\",level=\"turn\",node=\"a\"} 1
sluice_level{gpu=\"GPU-a-0\",level=\"token\",node=\"a\"} 0
sluice_client_gpu_share_ratio{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 0.731
sluice_client_quota_ratio{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 0.5
sluice_client_limit_ratio{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 0.8
sluice_client_memory_used_bytes{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 1073741824
sluice_client_memory_overhead_bytes{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 536870912
sluice_client_memory_limit_bytes{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 21474836480
sluice_client_processes{container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 1
sluice_client_processes{container=\"side\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\"} 2
sluice_client_violations_total{container=\"main\",gpu=\"GPU-a-0\",kind=\"x\",namespace=\"default\",node=\"a\",pod=\"train\"} 1
sluice_client_violations_total{container=\"main\",gpu=\"GPU-a-0\",kind=\"y\",namespace=\"default\",node=\"a\",pod=\"train\"} 2
sluice_client_info{class=\"best-effort\",container=\"main\",gpu=\"GPU-a-0\",namespace=\"default\",node=\"a\",pod=\"train\",pod_uid=\"u\",priority=\"best-effort\"} 1
";

/// Lines of a pod-manager's page.
const MANAGER: &str = "\
sluice_level{level=\"token\"} 2
sluice_share{client=\"a\"} 0.25
sluice_quota_ratio{client=\"a\"} 0.3
sluice_limit_ratio{client=\"a\"} 1
sluice_memory_used_bytes{client=\"a\"} 67108864
sluice_memory_limit_bytes{client=\"a\"} 1073741824
sluice_processes{client=\"a\"} 1
sluice_token_wait_seconds_bucket{client=\"a\",le=\"0.001\"} 50
sluice_token_wait_seconds_bucket{client=\"a\",le=\"0.005\"} 90
sluice_token_wait_seconds_bucket{client=\"a\",le=\"0.01\"} 100
sluice_token_wait_seconds_bucket{client=\"a\",le=\"+Inf\"} 100
";

fn text(top: &Top) -> String {
    layout(&lines(top)).join("\n")
}

#[test]
fn pods_of_the_cluster_get_the_figures_of_their_agents() {
    let train = pod("train", &[("quota", "0.5"), ("memory", "20Gi"), ("limit", "0.8")]);
    let serve = pod("serve", &[("quota", "0.2"), ("memory", "1Gi"), ("priority", "latency-critical")]);
    let pods = vec![running(train, "a", &[0]), running(serve, "a", &[1]), pod("next", &[("quota", "0.9")])];
    let mut top = Top::of_cluster(&cluster(vec![node("a", 2)], pods));
    top.add_page(Origin::Node("a"), AGENT).unwrap();
    top.notes.push("the metrics of b are missing: no answer".to_owned());
    let expected = "\
POD              PRIORITY          ASKED  LIMIT  GOT    MEMORY   MEMORY LIMIT  PROCESSES
a  gpu-0  NVIDIA H100  promised 0.500  memory 20.0 GiB of 80.0 GiB  levels: turn 1
  default/train  best-effort       0.500  0.800  0.731  1.5 GiB  20.0 GiB      3          3 violations
a  gpu-1  NVIDIA H100  promised 0.200  memory 1.0 GiB of 80.0 GiB
  default/serve  latency-critical  0.200  1.000  -      -        1.0 GiB       -
1 pod waiting (kubectl sluice explain): default/next
the metrics of b are missing: no answer";
    assert_eq!(text(&top), expected);
}

#[test]
fn agents_page_alone_gives_the_same_row() {
    let mut top = Top::default();
    top.add_page(Origin::Address("node-a:9400"), AGENT).unwrap();
    let [gpu] = top.gpus.as_slice() else { panic!("{:?}", top.gpus) };
    assert_eq!((gpu.node.as_str(), gpu.gpu.as_deref(), gpu.index), ("a", Some("GPU-a-0"), Some(0)));
    assert_eq!((gpu.promised_share, gpu.memory_bytes), (Some(0.5), Some(80 * GIB)));
    let [client] = gpu.clients.as_slice() else { panic!("{:?}", gpu.clients) };
    assert_eq!((client.asked_share, client.got_share, client.processes), (Some(0.5), Some(0.731), Some(3)));
}

#[test]
fn managers_page_has_waiting_times_and_one_gpu_without_a_uuid() {
    let mut top = Top::default();
    top.add_page(Origin::Address("127.0.0.1:9400"), MANAGER).unwrap();
    top.finish();
    let expected = "\
POD  PRIORITY  ASKED  LIMIT  GOT    MEMORY  MEMORY LIMIT  WAIT P50  WAIT P99  PROCESSES
127.0.0.1:9400  levels: token 2
  a  -         0.300  1.000  0.250  64 MiB  1.0 GiB       1.0 ms    9.5 ms    1";
    assert_eq!(text(&top), expected);
}

#[test]
fn latencies_of_requests_are_shown_where_a_client_has_some() {
    let series = |client: &str, quantile: &str, value: &str| {
        format!("sluice_request_quantile_seconds{{client=\"{client}\",quantile=\"{quantile}\"}} {value}\n")
    };
    let page = [
        MANAGER.replace("sluice_token_wait", "sluice_other"),
        series("a", "0.5", "0.0021"),
        series("a", "0.99", "0.0305"),
        series("a", "0.999", "1"),
        series("idle", "0.5", "NaN"),
        series("idle", "0.99", "NaN"),
    ];
    let mut top = Top::default();
    top.add_page(Origin::Address("127.0.0.1:9400"), &page.concat()).unwrap();
    top.finish();
    let expected = "\
POD     PRIORITY  ASKED  LIMIT  GOT    MEMORY  MEMORY LIMIT  LATENCY P50  LATENCY P99  PROCESSES
127.0.0.1:9400  levels: token 2
  a     -         0.300  1.000  0.250  64 MiB  1.0 GiB       2.1 ms       30.5 ms      1
  idle  -         -      -      -      -       -             -            -            -";
    assert_eq!(text(&top), expected);
}

#[test]
fn memory_that_may_leave_and_suspended_clients_are_shown_where_there_are_some() {
    let series =
        |name: &str, client: &str, value: u64| format!("sluice_{name}{{client=\"{client}\"}} {value}\n");
    let page = [
        MANAGER.replace("sluice_token_wait", "sluice_other"),
        series("memory_resident_bytes", "a", 0),
        series("memory_swapped_bytes", "a", 5 * GIB),
        series("client_suspended", "a", 1),
        series("memory_resident_bytes", "other", 0),
        series("memory_swapped_bytes", "other", 0),
        series("client_suspended", "other", 0),
    ];
    let mut top = Top::default();
    top.add_page(Origin::Address("127.0.0.1:9400"), &page.concat()).unwrap();
    top.finish();
    let expected = "\
POD      PRIORITY  ASKED  LIMIT  GOT    MEMORY  MEMORY LIMIT  ON GPU  ON HOST  PROCESSES
127.0.0.1:9400  levels: token 2
  a      -         0.300  1.000  0.250  64 MiB  1.0 GiB       0 MiB   5.0 GiB  1          suspended
  other  -         -      -      -      -       -             -       -        -";
    assert_eq!(text(&top), expected);
}

#[test]
fn managers_of_two_addresses_are_two_gpus() {
    let mut top = Top::default();
    top.add_page(Origin::Address("127.0.0.1:9400"), MANAGER).unwrap();
    top.add_page(Origin::Address("127.0.0.1:9401"), MANAGER).unwrap();
    assert_eq!(top.gpus.iter().map(|gpu| gpu.clients.len()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn page_of_another_program_is_refused() {
    let refused = Top::default().add_page(Origin::Address("127.0.0.1:9100"), "node_load1 0.5\n");
    assert_eq!(refused, Err("127.0.0.1:9100 serves no metrics of Sluice".to_owned()));
}

#[test]
fn page_that_names_another_nodes_gpu_changes_nothing() {
    let train = running(pod("train", &[("quota", "0.5"), ("memory", "20Gi")]), "a", &[0]);
    let mut top = Top::of_cluster(&cluster(vec![node("a", 1), node("b", 1)], vec![train]));
    let before = top.clone();
    top.add_page(Origin::Node("b"), AGENT).unwrap();
    top.add_page(Origin::Node("b"), &AGENT.replace("node=\"a\"", "node=\"b\"")).unwrap();
    assert_eq!(top, before);
}

#[test]
fn pod_with_two_gpus_is_a_client_of_each() {
    let pair = running(pod("pair", &[("quota", "0.5"), ("gpus", "2"), ("memory", "1Gi")]), "a", &[0, 1]);
    let top = Top::of_cluster(&cluster(vec![node("a", 2)], vec![pair]));
    assert_eq!(top.gpus.iter().map(|gpu| gpu.clients[0].asked_share).collect::<Vec<_>>(), [Some(0.5); 2]);
}

#[test]
fn mig_instances_have_the_ordinal_of_their_gpu_and_are_shown_by_their_uuids() {
    let mut split = node("a", 3);
    for index in [1, 2] {
        let instance = gpu_mut(&mut split, index);
        (instance.uuid, instance.index) = (format!("MIG-a-{index}"), 1);
    }
    let shown = text(&Top::of_cluster(&cluster(vec![split], vec![])));
    assert!(["a  gpu-0 ", "a  MIG-a-1 ", "a  MIG-a-2 "].iter().all(|gpu| shown.contains(gpu)), "{shown}");
    assert!(!shown.contains("gpu-1"), "{shown}");
}

#[test]
fn unknown_figures_are_null_in_json() {
    let mut top = Top::default();
    top.add_page(Origin::Address("127.0.0.1:9400"), MANAGER).unwrap();
    let json = serde_json::to_value(&top).unwrap();
    let client = &json["gpus"][0]["clients"][0];
    assert_eq!(client["got_share"], 0.25);
    assert!(client["namespace"].is_null() && json["gpus"][0]["model"].is_null());
    assert!(client.get("wait_buckets").is_none());
}

#[test]
fn quantiles_are_interpolated_and_unknown_above_the_highest_bound() {
    let mut buckets = WaitBuckets::default();
    assert_eq!(buckets.quantile(0.5), None);
    for (bound, waits) in [(0.1, 0.0), (0.2, 80.0), (f64::INFINITY, 100.0)] {
        buckets.add(Some(bound), waits);
    }
    assert!((buckets.quantile(0.4).unwrap() - 0.15).abs() < 1e-9);
    assert_eq!(buckets.quantile(0.99), Some(0.2));
}
