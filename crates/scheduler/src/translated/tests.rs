use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_placement::annotations::GpuRequest;

use super::template::template_for;
use super::*;

fn annotations(stated: &[(&str, &str)]) -> BTreeMap<String, String> {
    stated.iter().map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned())).collect()
}

fn devices(stated: &[(&str, &str)]) -> Value {
    let annotations = annotations(stated);
    let request = GpuRequest::admit(&annotations).unwrap().unwrap();
    let spec = claim_spec(&request, &annotations).unwrap();
    serde_json::to_value(spec).unwrap()["devices"].take()
}

#[test]
fn share_is_capacity_and_the_rest_configuration() {
    let found = devices(&[("quota", "0.3"), ("memory", "8Gi"), ("limit", "80%"), ("priority", "high")]);
    let request = json!({"name": "gpu", "exactly": {
        "deviceClassName": "gpu.sluice.dev", "count": 1, "capacity": {"requests": {"milli": "300", "memory": "8589934592"}}}});
    assert_eq!(found["requests"], json!([request]));
    assert_eq!(
        found["config"],
        json!([{"opaque": {"driver": "gpu.sluice.dev", "parameters":
            {"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig", "limit": "80%", "priority": "high"}}}])
    );
    assert_eq!(found.get("constraints"), None);
}

#[test]
fn memory_that_may_leave_and_suspended_pods_are_no_claims() {
    for (key, why) in [
        ("memory-overcommit", "the cluster adds up the memory of the claims of a GPU"),
        ("suspend", "a claim cannot change, so the pod could not be resumed"),
    ] {
        let annotations = annotations(&[("memory", "8Gi"), (key, "true")]);
        let request = GpuRequest::admit(&annotations).unwrap().unwrap();
        let refused = claim_spec(&request, &annotations).unwrap_err().to_string();
        let start =
            format!("sluice.dev/{key}: \"true\" is not allowed: not in a namespace whose pods get claims: ");
        assert_eq!(refused, format!("{start}{why}"));
    }
}

#[test]
fn several_gpus_are_different_ones_and_whole_ones_state_no_capacity() {
    let shares = devices(&[("gpus", "2"), ("quota", "0.5"), ("memory", "1Gi")]);
    let whole = devices(&[("quota", "2")]);
    for found in [&shares, &whole] {
        assert_eq!(found["requests"][0]["exactly"]["count"], 2);
        assert_eq!(found["constraints"], json!([{"distinctAttribute": "gpu.sluice.dev/uuid"}]));
    }
    assert_eq!(shares["requests"][0]["exactly"]["capacity"]["requests"]["milli"], "500");
    assert_eq!((whole["requests"][0]["exactly"].get("capacity"), whole.get("config")), (None, None));
}

#[test]
fn latency_critical_pod_prefers_a_gpu_without_another_one() {
    let found =
        devices(&[("quota", "0.1"), ("memory", "1Gi"), ("priority", "latency-critical"), ("slo", "5ms")]);
    let alternatives = found["requests"][0]["firstAvailable"].as_array().unwrap();
    let critical: Vec<_> = alternatives.iter().map(|one| &one["capacity"]["requests"]["critical"]).collect();
    assert_eq!(critical, [&json!("1"), &Value::Null]);
}

#[test]
fn models_and_uuids_are_selectors() {
    let found = devices(&[
        ("quota", "0.1"),
        ("memory", "1Gi"),
        ("gpu-model", "NVIDIA H200"),
        ("gpu-uuid", "GPU-a,GPU-b"),
    ]);
    let expressions: Vec<_> = found["requests"][0]["exactly"]["selectors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["cel"]["expression"].as_str().unwrap())
        .collect();
    assert_eq!(
        expressions,
        [
            "device.attributes['gpu.sluice.dev'].model in [\"NVIDIA H200\"] || \
             device.attributes['gpu.sluice.dev'].model.replace(' ', '-') in [\"NVIDIA H200\"]",
            "device.attributes['gpu.sluice.dev'].uuid in [\"GPU-a\",\"GPU-b\"]",
        ]
    );
}

#[test]
fn names_of_mig_instances_select_their_class() {
    for named in [
        ("gpu-model", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        ("gpu-model", "H200 MIG 1g.16gb"),
        ("gpu-uuid", "MIG-a,MIG-b"),
    ] {
        let found = devices(&[("quota", "0.1"), ("memory", "1Gi"), ("priority", "latency-critical"), named]);
        let classes: Vec<_> = found["requests"][0]["firstAvailable"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["deviceClassName"])
            .collect();
        assert_eq!(classes, [&json!("mig.sluice.dev"); 2], "{named:?}");
    }
    let whole = devices(&[("quota", "1"), ("gpu-uuid", "MIG-a")]);
    assert_eq!(whole["requests"][0]["exactly"]["deviceClassName"], "mig.sluice.dev");
}

#[test]
fn instances_beside_gpus_and_several_instances_are_refused() {
    let mistake = |stated: &[(&str, &str)]| {
        let annotations = annotations(stated);
        claim_spec(&GpuRequest::admit(&annotations).unwrap().unwrap(), &annotations).unwrap_err().to_string()
    };
    let share = [("quota", "0.1"), ("memory", "1Gi")];
    assert_eq!(
        mistake(&[&share[..], &[("gpu-uuid", "GPU-a,MIG-b")]].concat()),
        "sluice.dev/gpu-uuid: \"MIG-b, GPU-a\" is not allowed: either names of GPUs or of MIG instances, because a claim is for one kind"
    );
    assert_eq!(
        mistake(&[&share[..], &[("gpus", "2"), ("gpu-uuid", "MIG-a,MIG-b")]].concat()),
        "sluice.dev/gpu-uuid: \"MIG-a\" is not allowed: names of GPUs, because a pod uses one MIG instance at most"
    );
}

#[test]
fn share_without_memory_is_refused_because_no_claim_can_state_it() {
    let annotations = annotations(&[("quota", "0.3")]);
    let request = GpuRequest::admit(&annotations).unwrap().unwrap();
    let mistake = claim_spec(&request, &annotations).unwrap_err();
    assert!(
        mistake.to_string().starts_with("sluice.dev/memory is missing: a claim states its memory"),
        "{mistake}"
    );
}

/// A translated pod that waits for its template.
fn pod(record: &str) -> Value {
    json!({"metadata": {"name": "p", "namespace": "team", "uid": "u", "annotations": {RECORD: record}},
           "spec": {"containers": [], "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template_name(record)}]}})
}

fn template(pod: &Value) -> Result<Option<Value>, String> {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    template_for(&pod).map(|template| template.map(|template| serde_json::to_value(template).unwrap()))
}

#[test]
fn template_goes_with_the_pod_that_waits_for_it() {
    let record = record(&annotations(&[("quota", "0.3"), ("memory", "8Gi")]));
    let made = template(&pod(&record)).unwrap().unwrap();
    assert_eq!(
        (&made["metadata"]["namespace"], &made["metadata"]["name"]),
        (&json!("team"), &json!(template_name(&record)))
    );
    assert_eq!(
        made["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}])
    );
    assert_eq!(made["spec"]["spec"]["devices"], devices(&[("quota", "0.3"), ("memory", "8Gi")]));

    let mut served = pod(&record);
    served["status"] = json!({"resourceClaimStatuses": [{"name": CLAIM, "resourceClaimName": "p-sluice-x"}]});
    assert_eq!(template(&served), Ok(None));
    let mut ending = pod(&record);
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-29T20:00:00Z");
    assert_eq!(template(&ending), Ok(None));
}

#[test]
fn record_of_a_user_can_make_no_other_template_than_the_webhook() {
    let good = record(&annotations(&[("quota", "0.3"), ("memory", "8Gi")]));
    let mut other = pod(&good);
    other["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!("mine");
    assert!(template(&other).unwrap_err().contains("names the template mine, expected sluice-"));
    for bad in ["{}", "[]", "{\"sluice.dev/quota\":\"7.5\"}", "{\"sluice.dev/admin\":\"true\"}"] {
        assert!(template(&pod(bad)).is_err(), "{bad}");
    }
}

#[test]
fn name_is_the_same_for_equal_annotations_and_a_dns_label() {
    let one = annotations(&[("quota", "0.3"), ("memory", "8Gi")]);
    let name = template_name(&record(&one));
    assert_eq!(name, template_name(&record(&one.clone())));
    assert_ne!(name, template_name(&record(&annotations(&[("quota", "0.4"), ("memory", "8Gi")]))));
    assert!(
        name.len() <= 63
            && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
    );
}
