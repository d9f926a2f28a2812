//! The node's annotation `sluice.dev/gpus` and its labels.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sluice_placement::annotations::keys;
use sluice_placement::inventory::{self, NodeInventory};
use tracing::warn;

/// Beginning of the name of a label that a node has for each model of its GPUs.
const MODEL_PREFIX: &str = "sluice.dev/gpu.model.";
/// Longest name of a label behind `sluice.dev/`, bytes.
const LONGEST_NAME: usize = 63;
/// Value of the label for the model, on a node with several.
const MIXED: &str = "mixed";

/// The labels that follow from the inventory. `None`: the node must not have the label. Its labels for models of which it has no GPU any
/// more are among them.
fn labels(
    there: Option<&BTreeMap<String, String>>,
    inventory: &NodeInventory,
) -> BTreeMap<String, Option<String>> {
    let models: BTreeSet<String> =
        inventory.gpus.iter().filter_map(|gpu| inventory::label_value(&gpu.model)).collect();
    let mut labels: BTreeMap<String, Option<String>> =
        model_labels(there).map(|key| (key.to_owned(), None)).collect();
    labels.extend(inventory.labels().into_iter().map(|(key, value)| (key.to_owned(), value)));
    if models.len() > 1 {
        labels.insert(inventory::LABEL_MODEL.to_owned(), Some(MIXED.to_owned()));
    }
    labels.extend(models.iter().map(|model| (model_label(model), Some("true".to_owned()))));
    labels
}

fn model_label(model: &str) -> String {
    let longest = LONGEST_NAME - MODEL_PREFIX.len() + keys::PREFIX.len();
    let model = model.get(..longest).unwrap_or(model);
    format!("{MODEL_PREFIX}{}", model.trim_end_matches(|end: char| !end.is_ascii_alphanumeric()))
}

/// The labels for models that a node has.
fn model_labels(there: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = &str> {
    there.into_iter().flat_map(BTreeMap::keys).map(String::as_str).filter(|key| key.starts_with(MODEL_PREFIX))
}

/// The patch that removes annotation and labels from a node that has these labels.
pub(super) fn removal(there: Option<&BTreeMap<String, String>>) -> Value {
    let fixed = [inventory::LABEL_PRESENT, inventory::LABEL_COUNT, inventory::LABEL_MODEL];
    let labels: BTreeMap<&str, Value> =
        model_labels(there).chain(fixed).map(|key| (key, Value::Null)).collect();
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
    let there = metadata.labels.as_ref();
    let wanted = labels(there, inventory);
    let labels = differences(there, wanted.iter().map(|(key, value)| (key.as_str(), value.as_deref())));
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
