//! The node's annotation `sluice.dev/gpus` and its labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sluice_placement::annotations::keys;
use sluice_placement::inventory::{self, NodeInventory};
use tracing::warn;

/// The patch that removes annotation and labels.
pub(super) fn removal() -> Value {
    let labels: BTreeMap<&str, Value> =
        [inventory::LABEL_PRESENT, inventory::LABEL_COUNT, inventory::LABEL_MODEL]
            .map(|key| (key, Value::Null))
            .into();
    json!({"metadata": {"annotations": {(keys::NODE_GPUS): null}, "labels": labels}})
}

/// The patch that makes a node's metadata equal to the inventory; `None` if they are equal.
pub(super) fn patch(metadata: &ObjectMeta, inventory: &NodeInventory) -> Option<Value> {
    let annotation = match inventory.to_annotation() {
        Ok(annotation) => annotation,
        Err(why) => {
            warn!(%why, "the inventory cannot be serialised");
            return None;
        }
    };
    let wanted_labels = inventory.labels();
    let labels = wanted_labels.iter().map(|(key, value)| (*key, value.as_deref()));
    let labels = differences(metadata.labels.as_ref(), labels);
    let annotations =
        differences(metadata.annotations.as_ref(), [(keys::NODE_GPUS, Some(annotation.as_str()))]);
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
