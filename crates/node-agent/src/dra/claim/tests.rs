use serde_json::{Value, json};

use super::*;
use crate::gpus::fake;

const NODE: &str = "node-1";

fn inventory() -> NodeInventory {
    NodeInventory::new(10, vec![fake::gpu(0), fake::gpu(1)])
}

fn result(request: &str, gpu: u32, capacity: Value) -> Value {
    json!({
        "driver": DRIVER, "pool": NODE, "device": fake::gpu(gpu).uuid.to_lowercase(), "request": request,
        "shareID": format!("share-{request}"), "consumedCapacity": capacity,
    })
}

fn third() -> Value {
    json!({"milli": "300", "memory": "2Gi", "seats": "1"})
}

fn config(source: &str, requests: &[&str], more: Value) -> Value {
    let mut parameters = json!({"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig"});
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"source": source, "requests": requests, "opaque": {"driver": DRIVER, "parameters": parameters}})
}

fn claim(results: Value, configs: Value) -> ResourceClaim {
    serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ml", "name": "third", "uid": "claim-uid"}, "spec": {},
        "status": {
            "allocation": {"devices": {"results": results, "config": configs}},
            "reservedFor": [{"resource": "pods", "name": "train", "uid": "pod-uid"}],
        },
    }))
    .unwrap()
}

fn of(claim: &ResourceClaim) -> PreparedClaim {
    read(claim, NODE, &inventory()).unwrap()
}

fn mistakes(claim: &ResourceClaim) -> Vec<String> {
    read(claim, NODE, &inventory()).unwrap_err().0
}

fn request(share: &GpuShare) -> GpuRequest {
    GpuRequest::from_annotations(&share.annotations).unwrap().unwrap()
}

#[test]
fn consumed_capacity_is_request_and_memory_and_config_the_rest() {
    let config = config(
        "FromClaim",
        &[],
        json!({"limit": "80%", "priority": "latency-critical", "slo": "5ms", "gang": "ring"}),
    );
    let prepared = of(&claim(json!([result("gpu", 1, third())]), json!([config])));
    assert_eq!((prepared.namespace.as_str(), prepared.name.as_str()), ("ml", "third"));
    assert_eq!((prepared.pod.as_str(), prepared.pod_uid.as_str()), ("train", "pod-uid"));
    let [share] = prepared.shares.as_slice() else { panic!("{prepared:?}") };
    assert_eq!((&share.gpu, share.request.as_str()), (&fake::gpu(1).uuid, "gpu"));
    assert_eq!(share.share_id.as_deref(), Some("share-gpu"));
    let request = request(share);
    assert_eq!((request.demand.share.ppm(), request.limit.ppm()), (300_000, 800_000));
    assert_eq!(request.demand.memory_bytes, Some(2 << 30));
    assert_eq!((request.class.name(), request.slo_ns), ("latency-critical", Some(5_000_000)));
    assert_eq!(request.gang.as_deref(), Some("ring"));
}

#[test]
fn every_number_of_thousandths_is_exact() {
    for milli in [0, 1, 7, 125, 999, 1000] {
        let capacity = json!({"milli": milli.to_string(), "memory": "1234567168"});
        let prepared = of(&claim(json!([result("gpu", 0, capacity)]), json!([])));
        let request = request(&prepared.shares[0]);
        assert_eq!(request.demand.share.ppm(), milli * 1000);
        assert_eq!((request.limit.ppm(), request.demand.memory_bytes), (1_000_000, Some(1_234_567_168)));
    }
}

#[test]
fn the_api_servers_form_of_a_quantity_is_read() {
    let prepared = of(&claim(json!([result("gpu", 0, json!({"milli": "1k", "memory": "80Gi"}))]), json!([])));
    assert_eq!(request(&prepared.shares[0]).demand.share.ppm(), 1_000_000);
}

#[test]
fn claim_takes_precedence_over_class_key_by_key_and_only_for_its_requests() {
    let configs = json!([
        config("FromClaim", &["a"], json!({"limit": "0.5"})),
        config("FromClass", &[], json!({"limit": "0.9", "priority": "high"})),
        json!({"source": "FromClass", "opaque": {"driver": "nic.example.com", "parameters": {"limit": 1}}}),
    ]);
    let results = json!([result("a/small", 0, third()), result("b", 1, third())]);
    let prepared = of(&claim(results, configs));
    let limits: Vec<_> =
        prepared.shares.iter().map(|share| (share.request.as_str(), request(share).limit.ppm())).collect();
    assert_eq!(limits, [("a", 500_000), ("b", 900_000)]);
    assert!(prepared.shares.iter().all(|share| request(share).class.name() == "high"));
}

#[test]
fn devices_of_other_drivers_are_ignored() {
    let other = json!({"driver": "nic.example.com", "pool": NODE, "device": "nic", "request": "nic"});
    assert_eq!(of(&claim(json!([other, result("gpu", 0, third())]), json!([]))).shares.len(), 1);
    assert_eq!(
        mistakes(&claim(json!([other]), json!([]))),
        ["it has no device of the driver gpu.sluice.dev"]
    );
}

#[test]
fn all_mistakes_of_a_configuration_are_reported_at_once() {
    let config = config(
        "FromClaim",
        &[],
        json!({"kind": "Share", "limit": "0.2", "slo": "5ms", "speed": "high", "gang": true}),
    );
    let found = mistakes(&claim(json!([result("gpu", 0, third())]), json!([config])));
    assert_eq!(
        found,
        [
            "config.kind is \"Share\", expected \"ShareConfig\"",
            "config.gang is true, expected a text or a number",
            "config.speed: no such key; there are limit, priority, slo, gang",
            "request gpu: config.limit: \"0.2\" is not allowed: at least the capacity milli (0.300)",
            "request gpu: config.slo: \"5ms\" is not allowed: only with config.priority: latency-critical",
        ]
    );
}

#[test]
fn configuration_of_another_version_or_form_is_refused() {
    let of = |parameters: Value| {
        let config = json!({"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}});
        mistakes(&claim(json!([result("gpu", 0, third())]), json!([config])))
    };
    assert_eq!(
        of(json!({"apiVersion": "gpu.sluice.dev/v2", "limit": "0.9"})),
        [
            "config.apiVersion is \"gpu.sluice.dev/v2\", expected \"gpu.sluice.dev/v1alpha1\"",
            "config.kind is missing, expected \"ShareConfig\"",
        ]
    );
    assert_eq!(
        of(json!("fast")),
        ["config: \"fast\" is no object, expected a ShareConfig of gpu.sluice.dev/v1alpha1"]
    );
}

#[test]
fn results_that_promise_nothing_here_are_refused() {
    let mut wrong = result("gpu", 0, Value::Null);
    wrong["pool"] = json!("node-2");
    wrong["adminAccess"] = json!(true);
    wrong["device"] = json!("gpu-x");
    let found = mistakes(&claim(json!([wrong]), json!([]))).join("\n");
    for part in [
        "of the pool node-2, expected node-1",
        "adminAccess is true",
        "gpu-x is no GPU of node node-1",
        "has no milli",
        "has no memory",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    let too_much = json!({"milli": "1001", "memory": "2Gi"});
    let found = mistakes(&claim(json!([result("gpu", 0, too_much)]), json!([])));
    assert_eq!(found, ["request gpu: consumedCapacity.milli is 1001, expected at most 1000"]);
}

#[test]
fn claim_of_no_pod_or_of_two_is_refused() {
    let reserved = |pods: Value| {
        let mut claim = serde_json::to_value(claim(json!([result("gpu", 0, third())]), json!([]))).unwrap();
        claim["status"]["reservedFor"] = pods;
        mistakes(&serde_json::from_value(claim).unwrap()).join("; ")
    };
    let pod = json!({"resource": "pods", "name": "train", "uid": "u"});
    assert_eq!(reserved(json!([])), "it is reserved for 0 pods, expected one: a share belongs to one pod");
    assert_eq!(
        reserved(json!([pod, pod])),
        "it is reserved for 2 pods, expected one: a share belongs to one pod"
    );
    let group = json!({"resource": "podgroups", "name": "ring", "uid": "u"});
    assert_eq!(reserved(json!([group])), "it is reserved for podgroups ring, expected a pod");
}

#[test]
fn claim_without_allocation_is_refused() {
    let mut claim = claim(json!([]), json!([]));
    claim.status.as_mut().unwrap().allocation = None;
    assert_eq!(mistakes(&claim), ["it has no allocation"]);
}
