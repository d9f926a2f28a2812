//! The webhooks: pods in JSON in, patches and refusals in JSON out.

mod changes;
mod choice;
mod claims;
mod copies;
mod countable;
mod golden;
mod https;
mod node_selection;
mod platform;
mod properties;
mod refusals;
mod sandboxes;
mod translation;

use serde_json::{Value, json};

use super::admission;
use super::plan::Settings;
use super::review::{Decision, Operation, Request};

/// A pod as a user would write it: annotations (without the prefix), and the spec.
fn pod(annotations: &[(&str, &str)], spec: &Value) -> Value {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("sluice.dev/{key}"), json!(value))).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "annotations": annotations},
           "spec": spec})
}

/// One container called `main`.
fn single() -> Value {
    json!({"containers": [{"name": "main", "image": "train"}]})
}

/// A review as the API server sends it, reduced to the fields that matter.
fn review(operation: &str, object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5", "operation": operation, "namespace": "team", "name": "p",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": object, "oldObject": old, "dryRun": false, "userInfo": {"username": "eve"},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
}

fn request(operation: &str, object: &Value, old: &Value) -> Request {
    let request = Request::parse(review(operation, object, old).to_string().as_bytes()).unwrap();
    assert_eq!(request.operation == Operation::Create, operation == "CREATE");
    request
}

fn mutate_with(object: &Value, settings: &Settings) -> Decision {
    admission::mutate(&request("CREATE", object, &Value::Null), settings)
}

fn mutate(object: &Value) -> Decision {
    mutate_with(object, &Settings::default())
}

fn validate(object: &Value) -> Decision {
    admission::validate(&request("CREATE", object, &Value::Null), &Settings::default())
}

/// The patch as JSON.
fn patch(object: &Value) -> Value {
    match mutate(object) {
        Decision::Admitted { patch, .. } => serde_json::to_value(patch).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The warnings beside the patch: about a choice among the containers.
fn choice_warnings(object: &Value) -> Vec<String> {
    match mutate(object) {
        Decision::Admitted { warnings, .. } => warnings,
        other => panic!("{other:?}"),
    }
}

/// The pod after the patch.
fn patched(object: &Value) -> Value {
    let mut object = object.clone();
    let patch = patch(&object);
    apply(&mut object, &patch);
    object
}

/// The part of RFC 6902 that the webhook uses.
fn apply(object: &mut Value, patch: &Value) {
    for operation in patch.as_array().unwrap() {
        let (parent, last) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let last = last.replace("~1", "/").replace("~0", "~");
        let place = object.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is missing"));
        if operation["op"] == "remove" {
            assert!(place.as_object_mut().unwrap().remove(&last).is_some(), "{operation}");
            continue;
        }
        assert_eq!(operation["op"], "add");
        match place {
            Value::Array(list) if last == "-" => list.push(operation["value"].clone()),
            Value::Object(map) => drop(map.insert(last, operation["value"].clone())),
            other => panic!("{other} takes no {last}"),
        }
    }
}

/// The reason of the refusal, the same from both webhooks.
fn refused(object: &Value) -> String {
    let Decision::Refused(message) = mutate(object) else { panic!("{object} was not refused") };
    assert_eq!(validate(object), Decision::Refused(message.clone()));
    message
}

/// The warnings beside the admission.
fn warnings(object: &Value) -> Vec<String> {
    match validate(&patched(object)) {
        Decision::Admitted { patch, warnings } if patch.is_empty() => warnings,
        other => panic!("{other:?}"),
    }
}
