//! The node's capacity in time and memory of its GPUs, as extended resources in its status.
//!
//! Kubelet keeps extended resources that it does not know from a device plugin, and copies their capacity to the
//! allocatable amounts at its next update, up to 10 s later. Both are written here, so that they never differ. A kubelet
//! that starts without its device checkpoint sets all of them to 0; they are then written again.

use k8s_openapi::api::core::v1::NodeStatus;
use serde_json::{Value, json};
use sluice_placement::Countable;
use sluice_placement::annotations::{keys, parse_quantity};

/// Resources that this module writes. Device slots are kubelet's.
const WRITTEN: [&str; 2] = [keys::MILLI, keys::MEMORY_MIB];

/// The patch that makes the node's status equal to these amounts (`None`: the node has no such resources); `None` if they
/// are equal.
pub(super) fn patch(status: Option<&NodeStatus>, amounts: Option<Countable>) -> Option<Value> {
    let capacity = status.and_then(|status| status.capacity.as_ref());
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let resources = amounts.map(Countable::resources);
    let wanted = |name: &str| {
        let found = resources.as_ref()?.iter().find(|(resource, _)| *resource == name);
        found.map(|(_, amount)| *amount)
    };
    let mut change = serde_json::Map::new();
    for (field, there) in [("capacity", capacity), ("allocatable", allocatable)] {
        // The API server writes quantities in a form of its own: 2000 becomes 2k.
        let is =
            |name: &str| there.and_then(|there| there.get(name)).map(|quantity| parse_quantity(&quantity.0));
        let differing = WRITTEN.into_iter().filter(|name| is(name) != wanted(name).map(Some));
        let values: serde_json::Map<String, Value> = differing
            .map(|name| {
                (name.to_owned(), wanted(name).map_or(Value::Null, |amount| json!(amount.to_string())))
            })
            .collect();
        if !values.is_empty() {
            change.insert(field.to_owned(), Value::Object(values));
        }
    }
    (!change.is_empty()).then(|| json!({ "status": change }))
}

/// The patch that removes the resources.
pub(super) fn removal() -> Value {
    let none: serde_json::Map<String, Value> =
        WRITTEN.map(|name| (name.to_owned(), Value::Null)).into_iter().collect();
    json!({"status": {"capacity": none, "allocatable": none}})
}

#[cfg(test)]
mod tests;
