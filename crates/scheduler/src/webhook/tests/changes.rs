//! Changes of existing pods.

use serde_json::{Value, json};

use super::super::admission;
use super::super::plan::Settings;
use super::super::review::{Decision, Request};
use super::{patched, pod, request, review, single};

const FINE: Decision = Decision::Admitted { patch: Vec::new(), warnings: Vec::new() };

fn update(new: &Value, old: &Value) -> Decision {
    admission::validate(&request("UPDATE", new, old), &Settings::default())
}

#[test]
fn keys_of_sluice_are_immutable_after_creation() {
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
        assert_eq!(update(&new, &old), Decision::Refused(expected.to_owned()));
    }
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"sharedgpu/gpu_mem": "5"});
    assert!(matches!(update(&new, &old), Decision::Refused(_)));
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    new["metadata"]["annotations"]["c"] = json!("d");
    assert_eq!(update(&new, &old), FINE);
}

#[test]
fn pod_with_a_gpu_is_suspended_and_resumed_after_its_creation() {
    let running = patched(&pod(&[("quota", "0.3")], &single()));
    let with = |pod: &Value, value: &str| {
        let mut pod = pod.clone();
        pod["metadata"]["annotations"]["sluice.dev/suspend"] = json!(value);
        pod
    };
    let suspended = with(&running, "true");
    for (new, old) in [
        (&suspended, &running),
        (&with(&running, "false"), &suspended),
        (&running, &suspended),
        (&with(&suspended, "true"), &suspended),
    ] {
        assert_eq!(update(new, old), FINE);
    }
    let expected = "sluice.dev/suspend: \"yes\" is not allowed: true or false";
    assert_eq!(update(&with(&running, "yes"), &running), Decision::Refused(expected.to_owned()));
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {}}, "spec": single()});
    let expected =
        "sluice.dev/suspend: \"true\" is not allowed: only on a pod whose annotations request a GPU";
    assert_eq!(update(&with(&other, "true"), &other), Decision::Refused(expected.to_owned()));
    // Whether memory may leave decided the placement.
    let mut overcommits = running.clone();
    overcommits["metadata"]["annotations"]["sluice.dev/memory-overcommit"] = json!("true");
    assert!(matches!(update(&overcommits, &running), Decision::Refused(_)));
}

#[test]
fn mutating_webhook_ignores_updates() {
    let old = pod(&[("quota", "0.3")], &single());
    assert_eq!(admission::mutate(&request("UPDATE", &old, &old), &Settings::default()), Decision::NotOurs);
}

/// The request that replaces the old pod's debugging containers by the new pod's.
fn debugging(new: &Value, old: &Value) -> Request {
    let mut review = review("UPDATE", new, old);
    review["request"]["subResource"] = json!("ephemeralcontainers");
    Request::parse(review.to_string().as_bytes()).unwrap()
}

/// The pod with these debugging containers.
fn with_debugging(pod: &Value, containers: &Value) -> Value {
    let mut new = pod.clone();
    new["spec"]["ephemeralContainers"] = containers.clone();
    new
}

/// The validating webhook's decision about a debugging container with this environment.
fn debug(pod: &Value, env: &Value) -> Decision {
    let new = with_debugging(pod, &json!([{"name": "debugger", "image": "x", "env": env}]));
    admission::validate(&debugging(&new, pod), &Settings::default())
}

fn void() -> Value {
    json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
}

#[test]
fn a_debugging_container_gets_no_gpu() {
    let ours = patched(&pod(&[("quota", "0.3")], &single()));
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let message = "spec.ephemeralContainers[debugger].env[NVIDIA_VISIBLE_DEVICES]: \"all\" is not allowed: void or nothing: \
                   debugging containers get no GPU";
    assert_eq!(debug(&ours, &all), Decision::Refused(message.to_owned()));
    assert_eq!(debug(&ours, &json!([void()])), FINE);
    assert_eq!(debug(&ours, &json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}])), FINE);
    // The image may make all GPUs visible.
    let message = "spec.ephemeralContainers[debugger].env[NVIDIA_VISIBLE_DEVICES] is missing: void: debugging containers get \
                   no GPU; another webhook took it away, or Sluice's mutating webhook is not configured";
    assert_eq!(debug(&ours, &json!([])), Decision::Refused(message.to_owned()));
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": single()});
    assert_eq!(debug(&other, &all), Decision::NotOurs);
}

#[test]
fn new_debugging_containers_become_void_and_existing_ones_stay() {
    let old = with_debugging(
        &patched(&pod(&[("quota", "0.3")], &single())),
        &json!([{"name": "from-before", "image": "x"}]),
    );
    let mut new = with_debugging(
        &old,
        &json!([
            {"name": "from-before", "image": "x"},
            {"name": "bare", "image": "x", "envFrom": [{"configMapRef": {"name": "settings"}}]},
            {"name": "other", "image": "x", "env": [{"name": "A", "value": "b"}]},
            {"name": "greedy", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
        ]),
    );
    let mutated = |new: &Value| admission::mutate(&debugging(new, &old), &Settings::default());
    let Decision::Admitted { patch, .. } = mutated(&new) else { panic!("the request was not admitted") };
    let patch = serde_json::to_value(patch).unwrap();
    assert_eq!(
        patch,
        json!([
            {"op": "add", "path": "/spec/ephemeralContainers/1/env", "value": [void()]},
            {"op": "add", "path": "/spec/ephemeralContainers/2/env/-", "value": void()},
        ])
    );
    super::apply(&mut new, &patch);
    assert_eq!(mutated(&new), FINE);
    let valid = |new: &Value| admission::validate(&debugging(new, &old), &Settings::default());
    let Decision::Refused(message) = valid(&new) else { panic!("a container with all GPUs was admitted") };
    assert!(
        message.starts_with("spec.ephemeralContainers[greedy].env[NVIDIA_VISIBLE_DEVICES]: \"all\""),
        "{message}"
    );
    assert!(!message.contains(';'), "only one container is refused: {message}");
    new["spec"]["ephemeralContainers"].as_array_mut().unwrap().pop();
    assert_eq!(valid(&new), FINE);

    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": single()});
    let debugged = with_debugging(&other, &json!([{"name": "bare", "image": "x"}]));
    assert_eq!(admission::mutate(&debugging(&debugged, &other), &Settings::default()), Decision::NotOurs);
}

#[test]
fn other_resources_are_ignored() {
    let mut review = review("CREATE", &pod(&[("quota", "x")], &single()), &Value::Null);
    review["request"]["resource"]["resource"] = json!("services");
    let request = Request::parse(review.to_string().as_bytes()).unwrap();
    assert_eq!(admission::validate(&request, &Settings::default()), Decision::NotOurs);
    assert_eq!(admission::mutate(&request, &Settings::default()), Decision::NotOurs);
}
