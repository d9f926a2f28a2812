//! The YAML notation: `clients:` with a list of `{ name, request, limit, memory, class, slo, overcommit, suspended }`.
//!
//! The document is read untyped and checked by hand, because a typed reader stops at the first mistake.

use super::check::RawEntry;
use super::{Mistake, Place};
use serde_yaml::{Mapping, Value};

const KEYS: [&str; 8] = ["name", "request", "limit", "memory", "class", "slo", "overcommit", "suspended"];

/// Splits the document into entries. It may have the keys `others` beside `clients`.
pub(super) fn read(text: &str, others: &[&str]) -> (Mapping, Vec<RawEntry>, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let document = match serde_yaml::from_str::<Value>(text) {
        Ok(document) => document,
        Err(error) => {
            let line = error.location().map(|location| location.line());
            let mistake = Mistake::new(line, "file", error, "a YAML document");
            return (Mapping::new(), Vec::new(), vec![mistake]);
        }
    };
    let Value::Mapping(top) = document else {
        let mistake = Mistake::new(Some(1), "file", kind(&document), "a mapping with the key clients");
        return (Mapping::new(), Vec::new(), vec![mistake]);
    };
    let keys: Vec<&str> = std::iter::once("clients").chain(others.iter().copied()).collect();
    unknown_keys(&top, "file", &keys, text, &mut mistakes);
    let entries = match top.get("clients") {
        Some(Value::Sequence(list)) => {
            list.iter().enumerate().filter_map(|(n, item)| entry(n, item, text, &mut mistakes)).collect()
        }
        Some(Value::Null) => Vec::new(),
        other => {
            let found = other.map_or("nothing", kind);
            mistakes.push(Mistake::new(None, "clients", found, "a list of clients"));
            Vec::new()
        }
    };
    (top, entries, mistakes)
}

fn entry(index: usize, item: &Value, text: &str, mistakes: &mut Vec<Mistake>) -> Option<RawEntry> {
    let path = format!("clients[{index}]");
    let Value::Mapping(map) = item else {
        let expected = format!("a mapping with the keys {}", KEYS.join(", "));
        mistakes.push(Mistake::new(None, path, kind(item), &expected));
        return None;
    };
    unknown_keys(map, &path, &KEYS, text, mistakes);
    let named = map.get("name").and_then(Value::as_str);
    let path = named.map_or_else(|| path.clone(), |name| format!("{path} ({name})"));
    let place = Place { line: named.and_then(|name| line_of(text, name)), path };
    let mut word = |key: &str, default: Option<&str>| scalar(map, key, default, &place, mistakes);
    let name = word("name", None);
    let request = word("request", None);
    let limit = word("limit", Some("1"));
    let memory = word("memory", None);
    let class = word("class", Some("best-effort"));
    let slo = if map.contains_key("slo") { word("slo", None) } else { None };
    let mut switch = |key: &str| match map.get(key) {
        None => false,
        Some(Value::Bool(value)) => *value,
        Some(other) => {
            mistakes.push(place.mistake(key, kind(other), "true or false"));
            false
        }
    };
    let (overcommit, suspended) = (switch("overcommit"), switch("suspended"));
    Some(RawEntry { place, name, request, limit, memory, class, slo, overcommit, suspended })
}

fn scalar(
    map: &Mapping,
    key: &str,
    default: Option<&str>,
    place: &Place,
    mistakes: &mut Vec<Mistake>,
) -> Option<String> {
    let mistake = match map.get(key) {
        Some(Value::String(text)) => return Some(text.clone()),
        Some(Value::Number(number)) => return Some(number.to_string()),
        Some(other) => place.mistake(key, kind(other), "a word or a number"),
        None if default.is_some() => return default.map(str::to_owned),
        None => place.mistake(key, "nothing", "a value: it has no default"),
    };
    mistakes.push(mistake);
    None
}

fn unknown_keys(map: &Mapping, path: &str, known: &[&str], text: &str, mistakes: &mut Vec<Mistake>) {
    for key in map.keys() {
        let word = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
        if !known.contains(&word.as_str()) {
            let (found, expected) = (format!("unknown key {word:?}"), format!("only {}", known.join(", ")));
            mistakes.push(Mistake::new(line_of_key(text, &word), path, found, &expected));
        }
    }
}

/// The line, from 1, on which a key is, if only one line has it: the document tree does not keep lines.
pub fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let has_key = |line: &str| {
        line.match_indices(key).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + key.len()..].trim_start_matches(['"', '\'']);
            before.is_none_or(|c| " \t{,-\"'".contains(c)) && after.starts_with(':')
        })
    };
    let mut lines = text.lines().enumerate().filter(|(_, line)| has_key(line)).map(|(n, _)| n + 1);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// The line that names a client, if only one does: the document tree does not keep lines.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let names = |line: &str| {
        let value =
            line.split_once("name:").map(|(_, rest)| rest.trim_start().trim_start_matches(['"', '\'']));
        value
            .and_then(|value| value.strip_prefix(name))
            .is_some_and(|rest| !rest.starts_with(|c: char| !",}\"' \t#".contains(c)))
    };
    let mut lines = text.lines().enumerate().filter(|(_, line)| names(line)).map(|(n, _)| n + 1);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// A value of another file with the same kind of mistakes, as it is named there.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) | Value::Tagged(_) => "a mapping".to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a word",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Tagged(_) => "a tagged value",
    }
}
