//! The opaque configuration of a claim or of a DeviceClass, `ShareConfig`: what the capacities do not say. Pure.
//!
//! Its keys are those of the annotations without their prefix, and the parser of the annotations reads their values.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::annotations::keys;

/// The DRA driver's name, the domain of its attributes and of its configuration, and the name of the chart's DeviceClass of GPUs.
pub const DRIVER: &str = "gpu.sluice.dev";
/// The chart's DeviceClass of instances of GPUs in MIG mode.
pub const MIG_CLASS: &str = "mig.sluice.dev";
/// The chart's DeviceClasses.
pub const CLASSES: [&str; 2] = [DRIVER, MIG_CLASS];
/// Capacity: thousandths of the GPU's time.
pub const MILLI: &str = "milli";
/// Capacity: bytes that pods may request, in whole MiB.
pub const MEMORY: &str = "memory";
/// Capacity: pods that may share the GPU.
pub const SEATS: &str = "seats";
/// Capacity: 1, for one claim that keeps others which ask for it away from the GPU.
pub const CRITICAL: &str = "critical";
/// Every capacity of a device.
pub const CAPACITIES: [&str; 4] = [MILLI, MEMORY, SEATS, CRITICAL];

const API_VERSION: &str = "gpu.sluice.dev/v1alpha1";
const KIND: &str = "ShareConfig";

/// The keys of a configuration, and the annotation of the same meaning.
const KEYS: [(&str, &str); 4] =
    [("limit", keys::LIMIT), ("priority", keys::PRIORITY), ("slo", keys::SLO), ("gang", keys::GANG)];

/// The configuration as annotations. Mistakes of its form are appended; those of values show when the annotations are read.
pub fn annotations(parameters: &Value, mistakes: &mut Vec<String>) -> BTreeMap<String, String> {
    let Some(fields) = parameters.as_object() else {
        mistakes.push(format!("config: {parameters} is no object, expected a {KIND} of {API_VERSION}"));
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.get(field) {
            Some(value) if value == wanted => {}
            Some(value) => mistakes.push(format!("config.{field} is {value}, expected {wanted:?}")),
            None => mistakes.push(format!("config.{field} is missing, expected {wanted:?}")),
        }
    }
    for (field, value) in fields.iter().filter(|(field, _)| !["apiVersion", "kind"].contains(&field.as_str()))
    {
        let Some((_, key)) = KEYS.iter().find(|(name, _)| name == field) else {
            let known: Vec<_> = KEYS.iter().map(|(name, _)| *name).collect();
            mistakes.push(format!("config.{field}: no such key; there are {}", known.join(", ")));
            continue;
        };
        match value {
            Value::String(text) => found.insert((*key).to_owned(), text.clone()),
            Value::Number(number) => found.insert((*key).to_owned(), number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                mistakes.push(format!("config.{field} is {value}, expected a text or a number"));
                None
            }
        };
    }
    found
}

/// The configuration with what these annotations say; `None` if that is nothing.
pub fn parameters(annotations: &BTreeMap<String, String>) -> Option<Value> {
    let stated = KEYS
        .iter()
        .filter_map(|(field, key)| Some(((*field).to_owned(), annotations.get(*key)?.as_str().into())));
    let stated: serde_json::Map<String, Value> = stated.collect();
    (!stated.is_empty()).then(|| {
        let head = [("apiVersion", API_VERSION), ("kind", KIND)]
            .map(|(field, value)| (field.to_owned(), value.into()));
        head.into_iter().chain(stated).collect::<serde_json::Map<_, _>>().into()
    })
}

/// A mistake that the parser of the annotations reports, in the words of a claim.
pub fn in_words_of_claims(mistake: &str) -> String {
    mistake.replace(keys::QUOTA, "the capacity milli").replace(keys::PREFIX, "config.")
}
