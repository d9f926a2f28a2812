//! Claims, templates and DeviceClasses.

use serde_json::{Value, json};

use super::super::admission;
use super::super::plan::Settings;
use super::{Decision, Request};

fn config(more: Value) -> Value {
    let mut parameters = json!({"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig"});
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"opaque": {"driver": "gpu.sluice.dev", "parameters": parameters}})
}

fn request(class: &str, capacity: Value) -> Value {
    json!({"name": "gpu", "exactly": {"deviceClassName": class, "capacity": {"requests": capacity}}})
}

/// A claim on 0.3 of a GPU with these keys.
fn share(more: Value) -> Value {
    let third = request("gpu.sluice.dev", json!({"milli": "300", "memory": "2Gi"}));
    json!({"requests": [third], "config": [config(more)]})
}

fn decide(resource: &str, object: &Value) -> Decision {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "team", "name": "c",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": resource}, "object": object}});
    admission::validate(&Request::parse(review.to_string().as_bytes()).unwrap(), &Settings::default())
}

fn claim(devices: &Value) -> Decision {
    let decision = decide("resourceclaims", &json!({"spec": {"devices": devices}}));
    // A template has the same claim one level deeper.
    assert_eq!(decide("resourceclaimtemplates", &json!({"spec": {"spec": {"devices": devices}}})), decision);
    decision
}

fn mistakes(decision: Decision) -> Vec<String> {
    let Decision::Refused(message) = decision else { panic!("{decision:?}") };
    message.split("; ").filter(|part| !part.starts_with("there are")).map(str::to_owned).collect()
}

fn warnings(decision: Decision) -> Vec<String> {
    let Decision::Admitted { patch, warnings } = decision else { panic!("{decision:?}") };
    assert!(patch.is_empty());
    warnings
}

#[test]
fn good_claim_is_admitted_without_a_warning() {
    let all = json!({"limit": "80%", "priority": "latency-critical", "slo": "5ms", "gang": "ring"});
    assert!(warnings(claim(&share(all))).is_empty());
    let whole = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.sluice.dev"}}]});
    assert!(warnings(claim(&whole)).is_empty());
}

#[test]
fn all_mistakes_are_reported_at_once_and_each_once() {
    let mut devices =
        share(json!({"kind": "Share", "limit": "0.2", "slo": "soon", "speed": "high", "gang": true}));
    devices["requests"][0]["exactly"]["capacity"]["requests"]["mili"] = json!("1");
    assert_eq!(
        mistakes(claim(&devices)),
        [
            "devices.config[0]: config.kind is \"Share\", expected \"ShareConfig\"",
            "devices.config[0]: config.gang is true, expected a text or a number",
            "devices.config[0]: config.speed: no such key",
            "devices.config[0]: config.slo: \"soon\" is not allowed: a duration above 0, e.g. 5ms or 1.5s",
            "request gpu: config.limit: \"0.2\" is not allowed: at least the capacity milli (0.300)",
            "request gpu: capacity.mili: no such capacity",
        ]
    );
}

#[test]
fn configuration_counts_for_its_requests_only() {
    let mut devices = share(json!({"limit": "0.2"}));
    devices["config"][0]["requests"] = json!(["other"]);
    assert!(warnings(claim(&devices)).is_empty());
    devices["config"][0]["requests"] = json!(["gpu"]);
    assert_eq!(mistakes(claim(&devices)).len(), 1);
    let alternative = |name: &str, milli: &str| json!({"name": name, "deviceClassName": "gpu.sluice.dev", "capacity": {"requests": {"milli": milli, "memory": "1Gi"}}});
    devices["requests"] = json!([{"name": "gpu", "firstAvailable": [alternative("large", "500"), alternative("small", "100")]}]);
    assert_eq!(
        mistakes(claim(&devices)),
        ["request gpu/large: config.limit: \"0.2\" is not allowed: at least the capacity milli (0.500)"]
    );
}

#[test]
fn slo_without_priority_is_refused_unless_a_class_may_state_the_priority() {
    let mut devices = share(json!({"slo": "5ms"}));
    assert_eq!(
        mistakes(claim(&devices)),
        ["request gpu: config.slo: \"5ms\" is not allowed: only with config.priority: latency-critical"]
    );
    devices["requests"][0]["exactly"]["deviceClassName"] = json!("critical");
    assert!(warnings(claim(&devices)).is_empty());
    assert!(
        warnings(decide("deviceclasses", &json!({"spec": {"config": [config(json!({"slo": "5ms"}))]}})))
            .is_empty()
    );
}

#[test]
fn more_time_than_a_gpu_has_is_refused_and_half_of_a_request_is_warned_of() {
    let of = |capacity: Value| claim(&json!({"requests": [request("gpu.sluice.dev", capacity)]}));
    assert_eq!(
        mistakes(of(json!({"milli": "1500", "memory": "1Gi"}))),
        ["request gpu: capacity.milli is 1500, expected 0 to 1000: thousandths of one GPU's time"]
    );
    assert_eq!(
        warnings(of(json!({"milli": "300"}))),
        ["request gpu: it states milli only, so it asks for all memory of a GPU"]
    );
    assert_eq!(
        warnings(of(json!({"memory": "1Gi"}))),
        ["request gpu: it states memory only, so it asks for all time of a GPU"]
    );
}

#[test]
fn class_with_mistakes_is_refused_and_other_drivers_are_no_concern() {
    let class = json!({"spec": {"config": [config(json!({"limit": "2", "speed": 1}))]}});
    assert_eq!(mistakes(decide("deviceclasses", &class)).len(), 2);
    let other = json!({"requests": [request("nic.example.com", json!({"milli": "5000"}))],
                       "config": [{"opaque": {"driver": "nic.example.com", "parameters": {"speed": 1}}}]});
    assert!(warnings(claim(&other)).is_empty());
}
