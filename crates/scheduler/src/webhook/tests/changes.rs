//! Changes to pods that exist.

use serde_json::{Value, json};

use super::super::admission;
use super::super::plan::Settings;
use super::super::review::{Request, Verdict};
use super::{patched, pod, request, review, single};

const FINE: Verdict = Verdict::Admitted { patch: Vec::new(), warnings: Vec::new() };

fn update(new: &Value, old: &Value) -> Verdict {
    admission::validate(&request("UPDATE", new, old), &Settings::default())
}

#[test]
fn our_keys_stay_as_they_were_at_creation() {
    let old = patched(&pod(&[("quota", "0.3")], &single()));
    for (change, expected) in [
        (
            json!({"sluice.dev/quota": "0.9"}),
            "sluice.dev/quota: \"0.9\" is not allowed: \"0.3\" cannot change after the pod's creation; make a new pod",
        ),
        (
            json!({"sluice.dev/quota": null}),
            "sluice.dev/quota is missing: \"0.3\" cannot change after the pod's creation; make a new pod",
        ),
        (
            json!({"sluice.dev/limit": "0.9"}),
            "sluice.dev/limit: \"0.9\" is not allowed: it cannot be added after the pod's creation; make a new pod",
        ),
        (
            json!({"sluice.dev/assigned-gpu": "GPU-1"}),
            "sluice.dev/assigned-gpu: \"GPU-1\" is not allowed: it cannot be added after the pod's creation; make a new pod",
        ),
    ] {
        let mut new = old.clone();
        for (key, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(new["metadata"]["annotations"].as_object_mut().unwrap().remove(key)),
                value => new["metadata"]["annotations"][key] = value.clone(),
            }
        }
        assert_eq!(update(&new, &old), Verdict::Refused(expected.to_owned()));
    }
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"sharedgpu/gpu_mem": "5"});
    assert!(matches!(update(&new, &old), Verdict::Refused(_)));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    new["metadata"]["annotations"]["c"] = json!("d");
    assert_eq!(update(&new, &old), FINE);
}

#[test]
fn the_mutating_webhook_leaves_changes_alone() {
    let old = pod(&[("quota", "0.3")], &single());
    assert_eq!(admission::mutate(&request("UPDATE", &old, &old), &Settings::default()), Verdict::NotOurs);
}

/// A debugging container with this environment, into a pod.
fn debug(pod: &Value, env: &Value) -> Verdict {
    let mut new = pod.clone();
    new["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "x", "env": env}]);
    let mut review = review("UPDATE", &new, pod);
    review["request"]["subResource"] = json!("ephemeralcontainers");
    let request = Request::parse(review.to_string().as_bytes()).unwrap();
    assert_eq!(admission::mutate(&request, &Settings::default()), Verdict::NotOurs);
    admission::validate(&request, &Settings::default())
}

#[test]
fn a_debugging_container_gets_no_gpu() {
    let ours = patched(&pod(&[("quota", "0.3")], &single()));
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let message = "spec.ephemeralContainers[debugger].env[NVIDIA_VISIBLE_DEVICES]: \"all\" is not allowed: void or nothing: \
                   debugging containers get no GPU";
    assert_eq!(debug(&ours, &all), Verdict::Refused(message.to_owned()));
    assert_eq!(debug(&ours, &json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])), FINE);
    assert_eq!(debug(&ours, &json!([])), FINE);
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": single()});
    assert_eq!(debug(&other, &all), Verdict::NotOurs);
}

#[test]
fn other_resources_are_none_of_our_business() {
    let mut review = review("CREATE", &pod(&[("quota", "x")], &single()), &Value::Null);
    review["request"]["resource"]["resource"] = json!("services");
    let request = Request::parse(review.to_string().as_bytes()).unwrap();
    assert_eq!(admission::validate(&request, &Settings::default()), Verdict::NotOurs);
    assert_eq!(admission::mutate(&request, &Settings::default()), Verdict::NotOurs);
}
