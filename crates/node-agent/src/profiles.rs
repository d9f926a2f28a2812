//! Profiles: settings for the nodes with certain labels. They take precedence over the agent's flags.
//!
//! ```yaml
//! - name: training
//!   nodeLabels: { pool: training }
//!   seatsPerGpu: 4
//!   controls: off
//! ```
//!
//! The first profile whose labels the node has is used. All mistakes of all profiles are reported at once, also of those for
//! other nodes.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, FromArgMatches};
use serde_yaml::{Mapping, Value};

use crate::config::{Arguments, Config};

/// The settings that a profile may have, and the flag of each. The others concern the pod of the agent, or all nodes.
const SETTINGS: [(&str, &str); 7] = [
    ("seatsPerGpu", "seats-per-gpu"),
    ("contextReserve", "context-reserve"),
    ("hostMemory", "host-memory"),
    ("onManagerLoss", "on-manager-loss"),
    ("controls", "controls"),
    ("turnMs", "turn-ms"),
    ("selfTest", "self-test"),
];
const NAME: &str = "name";
const LABELS: &str = "nodeLabels";

/// One profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: String,
    labels: BTreeMap<String, String>,
    /// As on a command line.
    flags: Vec<String>,
}

/// All mistakes in the profiles.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("profiles: {}", .0.join("; "))]
pub(crate) struct Mistakes(Vec<String>);

/// Reads the profiles of a file.
pub(crate) fn read(text: &str) -> Result<Vec<Profile>, Mistakes> {
    let list: Vec<Mapping> = serde_yaml::from_str(text)
        .map_err(|why| Mistakes(vec![format!("no list of profiles in YAML: {why}")]))?;
    let mut mistakes = Vec::new();
    let profiles: Vec<Profile> =
        list.iter().enumerate().map(|(index, profile)| read_one(index, profile, &mut mistakes)).collect();
    let mut names = BTreeSet::new();
    let twice = profiles.iter().filter(|profile| !names.insert(&profile.name));
    mistakes.extend(twice.map(|profile| format!("the name {:?} is there twice", profile.name)));
    if mistakes.is_empty() { Ok(profiles) } else { Err(Mistakes(mistakes)) }
}

fn read_one(index: usize, fields: &Mapping, mistakes: &mut Vec<String>) -> Profile {
    let name = fields.get(NAME).and_then(Value::as_str).unwrap_or_default().to_owned();
    let shown = if name.is_empty() { format!("profile {}", index + 1) } else { name.clone() };
    if name.is_empty() {
        mistakes.push(format!("{shown} has no {NAME}, expected a text"));
    }
    let labels = fields.get(LABELS).cloned().map(serde_yaml::from_value::<BTreeMap<String, String>>);
    let labels = match labels {
        Some(Ok(labels)) if !labels.is_empty() => labels,
        Some(Ok(_)) | None => {
            mistakes.push(format!("{shown} has no {LABELS}, expected at least one label with its value"));
            BTreeMap::new()
        }
        Some(Err(why)) => {
            mistakes.push(format!("{shown}: {LABELS}: {why}, expected labels with texts as values"));
            BTreeMap::new()
        }
    };
    let mut flags = Vec::new();
    for (key, value) in fields {
        let key = key.as_str().unwrap_or_default();
        if [NAME, LABELS].contains(&key) {
            continue;
        }
        let Some((_, flag)) = SETTINGS.iter().find(|(setting, _)| *setting == key) else {
            let known: Vec<_> = SETTINGS.iter().map(|(setting, _)| *setting).collect();
            mistakes.push(format!(
                "{shown}: {key:?} is no setting of a profile, expected one of {}",
                known.join(", ")
            ));
            continue;
        };
        match scalar(value).map(|text| format!("--{flag}={text}")) {
            Some(flag) => match check(&flag) {
                Ok(()) => flags.push(flag),
                Err(why) => mistakes.push(format!("{shown}: {key}: {why}")),
            },
            None => mistakes.push(format!("{shown}: {key} is a list or a map, expected a text or a number")),
        }
    }
    Profile { name, labels, flags }
}

/// Checks a flag as the agent does at its start.
fn check(flag: &str) -> Result<(), String> {
    let command = Arguments::augment_args(clap::Command::new("profile"));
    let matches =
        command.try_get_matches_from(["profile", "--node=any", flag]).map_err(|why| first_line(&why))?;
    let arguments = Arguments::from_arg_matches(&matches).map_err(|why| first_line(&why))?;
    Config::read(&arguments, |_| None).map(drop).map_err(|why| why.to_string())
}

/// A value as on a command line. YAML reads a bare `off` as false.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(false) => Some("off".to_owned()),
        _ => None,
    }
}

impl Profile {
    /// Whether it is for a node with these labels.
    pub(crate) fn is_for(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Replaces the flags that the profile sets.
    pub(crate) fn apply(&self, arguments: &mut Arguments) -> Result<(), String> {
        // A default would replace what the command line says.
        let command = Arguments::augment_args_for_update(clap::Command::new("profile"))
            .mut_args(|argument| argument.default_value(None::<&'static str>));
        let words = std::iter::once("profile").chain(self.flags.iter().map(String::as_str));
        let matches = command.try_get_matches_from(words).map_err(|why| first_line(&why))?;
        arguments.update_from_arg_matches(&matches).map_err(|why| first_line(&why))
    }
}

/// The message without the usage of a command.
fn first_line(why: &clap::Error) -> String {
    let text = why.to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.trim().trim_start_matches("error: "));
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
