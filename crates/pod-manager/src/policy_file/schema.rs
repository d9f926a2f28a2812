//! The JSON schema of the policy file.

use super::settings::{Kind, SETTINGS, Setting};
use crate::config::Config;
use serde_json::{Map, Value, json};

/// The JSON schema of the policy file. It cannot express that the first grant is between the shortest and the longest one.
pub fn schema() -> Value {
    let mut schema = section();
    let config = Config::new("", "");
    for setting in &SETTINGS {
        let (own, sections) = setting.path.split_last().unwrap_or((&"", &[]));
        let mut properties = properties_of(&mut schema);
        for name in sections {
            let section = properties.entry(*name).or_insert_with(section);
            properties = properties_of(section);
        }
        properties.insert((*own).to_owned(), property(setting, config.clone()));
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Policy file of sluice pod-manager");
    schema
}

fn section() -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {} })
}

fn properties_of(section: &mut Value) -> &mut Map<String, Value> {
    // Every section is made by `section`.
    match &mut section["properties"] {
        Value::Object(properties) => properties,
        _ => unreachable!("a section has properties"),
    }
}

fn property(setting: &Setting, mut config: Config) -> Value {
    let default = setting.kind.value(&mut config);
    let mut property = match setting.kind {
        Kind::Milliseconds(least, most, _) => number("number", least, most),
        Kind::Microseconds(least, most, _) | Kind::Count(least, most, _) => number("integer", least, most),
    };
    property["description"] = json!(setting.help);
    property["default"] = default;
    property
}

fn number(kind: &str, least: f64, most: f64) -> Value {
    json!({ "type": kind, "minimum": plain(least), "maximum": plain(most) })
}

/// A number without a fraction as JSON writes whole numbers.
pub(super) fn plain(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53")]
    let whole = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "whole numbers below 2^53")]
    let is_whole = (whole as f64).to_bits() == number.to_bits();
    if is_whole { json!(whole) } else { json!(number) }
}
