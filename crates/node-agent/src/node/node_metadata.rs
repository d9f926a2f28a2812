//! The node's annotations `sluice.dev/gpus` and `sluice.dev/injection`, and its labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sluice_placement::annotations::keys;
use sluice_placement::inventory::{self, NodeInventory};
use tracing::warn;

/// The labels that follow from the inventory. `None`: the node must not have the label. Its labels for models of which it has no GPU any
/// more are among them.
fn labels(
    there: Option<&BTreeMap<String, String>>,
    inventory: &NodeInventory,
) -> BTreeMap<String, Option<String>> {
    let stale = model_labels(there).map(|key| (key.to_owned(), None));
    stale.chain(inventory.labels()).collect()
}

/// The labels for models that a node has.
fn model_labels(there: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = &str> {
    there
        .into_iter()
        .flat_map(BTreeMap::keys)
        .map(String::as_str)
        .filter(|key| key.starts_with(inventory::LABEL_MODEL_PREFIX))
}

/// The patch that removes annotations and labels from a node that has these labels.
pub(super) fn removal(there: Option<&BTreeMap<String, String>>) -> Value {
    let fixed = [inventory::LABEL_PRESENT, inventory::LABEL_COUNT, inventory::LABEL_MODEL];
    let labels: BTreeMap<&str, Value> =
        model_labels(there).chain(fixed).map(|key| (key, Value::Null)).collect();
    json!({"metadata": {"annotations": {(keys::NODE_GPUS): null, (keys::NODE_INJECTION): null}, "labels": labels}})
}

/// The patch that makes a node's metadata equal to the inventory and to what is known of the injection; `None` if they are equal. The
/// annotation of the inventory is only there for the extender.
pub(super) fn patch(
    metadata: &ObjectMeta,
    inventory: &NodeInventory,
    is_for_extender: bool,
    injection: Option<&str>,
) -> Option<Value> {
    let annotation = match inventory.to_annotation() {
        Ok(annotation) => annotation,
        Err(why) => {
            warn!(%why, "the inventory cannot be serialised");
            return None;
        }
    };
    let there = metadata.labels.as_ref();
    let wanted = labels(there, inventory);
    let labels = differences(there, wanted.iter().map(|(key, value)| (key.as_str(), value.as_deref())));
    let wanted = [
        (keys::NODE_GPUS, is_for_extender.then_some(annotation.as_str())),
        (keys::NODE_INJECTION, injection),
    ];
    let annotations = differences(metadata.annotations.as_ref(), wanted);
    let mut change = serde_json::Map::new();
    for (field, differences) in [("annotations", annotations), ("labels", labels)] {
        if !differences.is_empty() {
            change.insert(field.to_owned(), Value::Object(differences));
        }
    }
    (!change.is_empty()).then(|| json!({ "metadata": change }))
}

fn differences<'a>(
    there: Option<&BTreeMap<String, String>>,
    wanted: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> serde_json::Map<String, Value> {
    let is = |key: &str| there.and_then(|there| there.get(key)).map(String::as_str);
    let differing = wanted.into_iter().filter(|(key, value)| is(key) != *value);
    differing.map(|(key, value)| (key.to_owned(), value.map_or(Value::Null, Value::from))).collect()
}

#[cfg(test)]
mod tests;
