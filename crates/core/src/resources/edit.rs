//! Suspends and resumes a client in the text of a resource file, and leaves all other bytes as they are.
//!
//! A YAML document tree does not keep places. So each edit that may be the right one is tried, and the first one is taken after which the
//! document says exactly what it should.

use super::{Mistakes, ParseOptions, parse};
use serde_yaml::Value;

const KEY: &str = "suspended";

/// Why a text is not edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file is not valid before the edit.
    #[error("{0}")]
    Mistakes(Mistakes),
    /// Gemini's notation has no such key.
    #[error("found Gemini's notation, which has no key `suspended`, expected YAML with `clients:`")]
    NoYaml,
    /// No client has the name.
    #[error("found no client {name:?}, only {}", found.join(", "))]
    NoSuchClient {
        /// The name.
        name: String,
        /// The names of all clients.
        found: Vec<String>,
    },
    /// The entry is written in a way that no edit fits.
    #[error(
        "cannot edit the entry of {0:?}, found no line or mapping that begins with its name: set `suspended` in it by hand"
    )]
    NoPlace(String),
}

/// The text with the client suspended, or resumed. `None`: it is so already.
///
/// # Errors
/// The text is no valid resource file in YAML, or has no such client, or its entry is written in a way that cannot be edited.
pub fn set_suspended(text: &str, client: &str, suspended: bool) -> Result<Option<String>, EditError> {
    let entries = parse(text, ParseOptions::default()).map_err(EditError::Mistakes)?;
    let document: Value = serde_yaml::from_str(text).unwrap_or_default();
    if !document.is_mapping() {
        return Err(EditError::NoYaml);
    }
    let Some(at) = entries.iter().position(|entry| entry.name == client) else {
        let found = entries.into_iter().map(|entry| entry.name).collect();
        return Err(EditError::NoSuchClient { name: client.to_owned(), found });
    };
    if entries[at].suspended == suspended {
        return Ok(None);
    }
    let edits = if suspended { suspensions(text, client) } else { resumptions(text) };
    let wanted: Vec<Value> = if suspended {
        vec![with_key(&document, at, Some(true))]
    } else {
        vec![with_key(&document, at, None), with_key(&document, at, Some(false))]
    };
    let is_right =
        |edit: &String| serde_yaml::from_str::<Value>(edit).is_ok_and(|found| wanted.contains(&found));
    edits.into_iter().find(is_right).map(Some).ok_or_else(|| EditError::NoPlace(client.to_owned()))
}

/// The document with the key of the client at this position set, or removed.
fn with_key(document: &Value, at: usize, value: Option<bool>) -> Value {
    let mut document = document.clone();
    let entry = document.get_mut("clients").and_then(|clients| clients.get_mut(at));
    if let Some(Value::Mapping(entry)) = entry {
        match value {
            Some(value) => _ = entry.insert(KEY.into(), value.into()),
            None => _ = entry.remove(KEY),
        }
    }
    document
}

/// Texts in which the client may be suspended: the key has another value, or stands behind the client's name.
fn suspensions(text: &str, client: &str) -> Vec<String> {
    let mut edits: Vec<String> =
        switches(text, "false").map(|switch| replaced(text, switch.value, switch.end, "true")).collect();
    for (start, name) in text.match_indices(client) {
        let end = start + name.len();
        let end = end + usize::from(text[end..].starts_with(['"', '\'']));
        edits.push(replaced(text, end, end, &format!(", {KEY}: true")));
        let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let Some(column) = text[line..start].rfind("name") else { continue };
        let quoted = text[line..line + column].ends_with(['"', '\'']);
        let indent = " ".repeat(column - usize::from(quoted));
        let rest = text[end..].find('\n');
        let line_end = rest.map_or(text.len(), |rest| end + rest);
        let newline = if text[..line_end].ends_with('\r') { "\r\n" } else { "\n" };
        let at = line_end - usize::from(newline == "\r\n");
        edits.push(replaced(text, at, at, &format!("{newline}{indent}{KEY}: true")));
    }
    edits
}

/// Texts in which a client may be resumed: a key is missing, or has another value.
fn resumptions(text: &str) -> Vec<String> {
    let mut edits = Vec::new();
    for Switch { key, value, end } in switches(text, "true") {
        let line = text[..key].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[end..].find('\n').map_or(text.len(), |rest| end + rest + 1);
        if text[line..line_end].trim() == &text[key..end] {
            // Without the line, or without the end of the line before if the file ends here.
            let start = if text[..line_end].ends_with('\n') { line } else { line.saturating_sub(1) };
            edits.push(replaced(text, start, line_end, ""));
        }
        let before = text[..key].trim_end();
        if before.ends_with(',') {
            edits.push(replaced(text, before.len() - 1, end, ""));
        }
        let after = text[end..].trim_start();
        if let Some(after) = after.strip_prefix(',') {
            edits.push(replaced(text, key, text.len() - after.trim_start().len(), ""));
        }
        edits.push(replaced(text, value, end, "false"));
    }
    edits
}

/// Where a key and its value are.
#[derive(Clone, Copy)]
struct Switch {
    /// Where the key begins, with its quote.
    key: usize,
    /// Where the value begins and ends.
    value: usize,
    end: usize,
}

/// The places of all keys with this value.
fn switches<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = Switch> + 't {
    text.match_indices(KEY).filter_map(move |(start, key)| {
        let is_quoted = text[..start].ends_with(['"', '\'']);
        let rest = text[start + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        let rest = rest.strip_prefix(':')?.trim_start();
        let value = text.len() - rest.len();
        let found = rest.get(..word.len()).filter(|found| found.eq_ignore_ascii_case(word))?;
        Some(Switch { key: start - usize::from(is_quoted), value, end: value + found.len() })
    })
}

fn replaced(text: &str, start: usize, end: usize, by: &str) -> String {
    [&text[..start], by, &text[end..]].concat()
}

#[cfg(test)]
mod tests;
