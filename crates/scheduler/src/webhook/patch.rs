//! The JSON patch that completes a pod: additions, replaced members, and the removal of annotations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use serde::Serialize;
use serde_json::{Value, json};

/// One operation of RFC 6902.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct Operation {
    op: &'static str,
    path: String,
    /// `None`: the operation is a removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// Adds to an object or list, or replaces a member.
pub(super) fn add(path: String, value: Value) -> Operation {
    Operation { op: "add", path, value: Some(value) }
}

/// Removes an annotation that the pod has.
pub(super) fn remove_annotation(key: &str) -> Operation {
    Operation { op: "remove", path: format!("/metadata/annotations/{}", step(key)), value: None }
}

/// A key as one step of a path (RFC 6901).
fn step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Adds members to the map at `path`, which may be absent.
fn add_members(path: &str, there: bool, members: &BTreeMap<String, String>) -> Vec<Operation> {
    if members.is_empty() {
        return Vec::new();
    }
    if !there {
        return vec![add(path.to_owned(), json!(members))];
    }
    members.iter().map(|(key, value)| add(format!("{path}/{}", step(key)), json!(value))).collect()
}

pub(super) fn annotations(there: bool, wanted: &BTreeMap<String, String>) -> Vec<Operation> {
    add_members("/metadata/annotations", there, wanted)
}

/// Adds a label that the pod does not have with this value.
pub(super) fn label(there: Option<&BTreeMap<String, String>>, key: &str, value: &str) -> Vec<Operation> {
    if there.and_then(|labels| labels.get(key)).is_some_and(|stated| stated == value) {
        return Vec::new();
    }
    let wanted = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    add_members("/metadata/labels", there.is_some(), &wanted)
}

/// Amounts of resources, in the container's limits and requests.
pub(super) fn amounts(
    path: &str,
    container: &Container,
    amounts: &BTreeMap<String, String>,
) -> Vec<Operation> {
    let Some(resources) = &container.resources else {
        return vec![add(format!("{path}/resources"), json!({"limits": amounts, "requests": amounts}))];
    };
    let mut operations = Vec::new();
    for (name, map) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        let is_there = |key: &String| map.as_ref().is_some_and(|map| map.contains_key(key));
        let missing = amounts.iter().filter(|(key, _)| !is_there(key));
        let missing = missing.map(|(key, amount)| (key.clone(), amount.clone())).collect();
        operations.extend(add_members(&format!("{path}/resources/{name}"), map.is_some(), &missing));
    }
    operations
}

/// Adds a variable to the container's environment, which may be absent.
pub(super) fn variable(path: &str, there: bool, variable: Value) -> Operation {
    if there { add(format!("{path}/env/-"), variable) } else { add(format!("{path}/env"), json!([variable])) }
}
