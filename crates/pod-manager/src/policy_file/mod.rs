//! The policy file: settings of scheduling that can change while clients run (docs/operators/policy.md).
//!
//! A setting of the file takes precedence over the flag of the same meaning. The document is read untyped and checked key by key, because
//! a typed reader stops at the first mistake.

mod lines;
mod schema;
mod settings;

pub use schema::schema;

use crate::config::Config;
use lines::line_of;
use schema::plain;
use serde_yaml::{Mapping, Value};
use settings::{Kind, REFUSED, SETTINGS, Setting};
use sluice_core::resources::{Mistake, Mistakes, shown};
use std::collections::BTreeMap;
use std::time::Duration;

impl Config {
    /// The configuration with the settings of a policy file.
    /// Errors: every mistake in the file, with its line and key.
    pub fn with_policy(&self, text: &str) -> Result<Self, Mistakes> {
        let mut reader = Reader { text, config: self.clone(), given: BTreeMap::new(), mistakes: Vec::new() };
        match serde_yaml::from_str::<Value>(text) {
            Ok(Value::Null) => {}
            Ok(Value::Mapping(map)) => reader.read_section(&map, &[]),
            Ok(other) => reader.mistakes.push(Mistake::new(Some(1), "file", shown(&other), SECTION)),
            Err(error) => {
                let line = error.location().map(|location| location.line());
                reader.mistakes.push(Mistake::new(line, "file", error, "a YAML document"));
            }
        }
        reader.check();
        Mistakes::none_or(reader.mistakes).map(|()| reader.config)
    }
}

/// The settings of a configuration as lines `key: value`, as a policy file would have them.
pub fn describe(config: &Config) -> String {
    let mut config = config.clone();
    let line = |setting: &Setting| {
        let value = setting.kind.value(&mut config);
        let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}: {word}\n", setting.path.join("."))
    };
    SETTINGS.iter().map(line).collect()
}

const SECTION: &str = "a mapping";

struct Reader<'a> {
    text: &'a str,
    config: Config,
    /// What the file has for each setting, `None` where that is a mistake already.
    given: BTreeMap<&'static str, Option<String>>,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn wrong(&mut self, path: &[&str], found: impl std::fmt::Display, expected: &str) {
        self.mistakes.push(Mistake::new(line_of(self.text, path), path.join("."), found, expected));
    }

    fn read_section(&mut self, map: &Mapping, outer: &[&str]) {
        for (key, value) in map {
            let word = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
            let path = [outer, &[word.as_str()]].concat();
            let begins = |other: &[&str]| other.starts_with(&path);
            if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == path) {
                self.wrong(&path, shown(value), &format!("no such key: {reason}"));
            } else if let Some(setting) = SETTINGS.iter().find(|setting| setting.path == path) {
                self.read_setting(setting, value);
            } else if SETTINGS.iter().any(|setting| begins(setting.path)) {
                match value {
                    Value::Mapping(inner) => self.read_section(inner, &path),
                    Value::Null => {}
                    other => self.wrong(&path, shown(other), SECTION),
                }
            } else {
                let mut known: Vec<&str> = Vec::new();
                for key in SETTINGS.iter().filter_map(|setting| setting.path.strip_prefix(outer)?.first()) {
                    if !known.contains(key) {
                        known.push(key);
                    }
                }
                self.wrong(&path, "an unknown key", &format!("only {}", known.join(", ")));
            }
        }
    }

    fn read_setting(&mut self, setting: &'static Setting, value: &Value) {
        let is_read = setting.kind.set(&mut self.config, value);
        if !is_read {
            self.wrong(setting.path, shown(value), setting.kind.expected());
        }
        self.given.insert(setting.field, is_read.then(|| shown(value)));
    }

    /// Adds the mistakes that the whole configuration has because of the file.
    fn check(&mut self) {
        let Err(found) = self.config.check() else { return };
        for mistake in found.iter() {
            let setting = SETTINGS.iter().find(|setting| setting.field == mistake.field);
            let Some(setting) = setting else { continue };
            let found = match self.given.get(setting.field) {
                // A mistake of the same key is known already.
                Some(None) => continue,
                Some(Some(given)) => given.clone(),
                None => format!("{} by a flag or by default", mistake.found),
            };
            self.wrong(setting.path, found, &names_of_keys(&mistake.expected));
        }
    }
}

/// The text with the keys of the file in place of fields of the configuration.
fn names_of_keys(expected: &str) -> String {
    let key = |word: &str| {
        let setting = SETTINGS.iter().find(|setting| setting.field == word);
        setting.and_then(|setting| setting.path.last().copied())
    };
    expected.split(' ').map(|word| key(word).unwrap_or(word)).collect::<Vec<_>>().join(" ")
}

impl Kind {
    const fn expected(&self) -> &'static str {
        match self {
            Self::Milliseconds(..) => "a number of milliseconds",
            Self::Microseconds(..) => "a whole number of microseconds",
            Self::Count(..) => "a whole number",
        }
    }

    /// Sets the field. Returns `false` if the value is of another kind.
    fn set(&self, config: &mut Config, value: &Value) -> bool {
        let number = value.as_f64();
        let whole = number.filter(|number| number.fract() == 0.0);
        match self {
            Self::Milliseconds(.., field) => set(field(config), number.and_then(|ms| seconds(ms / 1e3))),
            Self::Microseconds(.., field) => set(field(config), whole.and_then(|us| seconds(us / 1e6))),
            Self::Count(.., field) => {
                set(field(config), value.as_u64().and_then(|count| count.try_into().ok()))
            }
        }
    }

    /// The value of the field, as the file has it.
    fn value(&self, config: &mut Config) -> serde_json::Value {
        match self {
            Self::Milliseconds(.., field) => plain(field(config).as_secs_f64() * 1e3),
            Self::Microseconds(.., field) => serde_json::json!(u64::try_from(field(config).as_micros()).ok()),
            Self::Count(.., field) => serde_json::json!(*field(config)),
        }
    }
}

fn set<T>(field: &mut T, value: Option<T>) -> bool {
    let is_known = value.is_some();
    if let Some(value) = value {
        *field = value;
    }
    is_known
}

fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests;
