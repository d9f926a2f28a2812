//! The fields of a mapping of the scenario file, read one by one. Every mistake is noted, and reading goes on.

use serde_yaml::{Mapping, Value};
use sluice_core::resources::{Mistake, line_of_key, shown};
use sluice_core::share::parse_duration;

/// A part of the file: its text, to find lines, and the name of the part.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    text: &'a str,
    first_line: usize,
    /// The line of a key that is not found.
    fallback: Option<usize>,
    path: String,
}

impl<'a> Part<'a> {
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, first_line: 1, fallback: None, path: String::new() }
    }

    /// An entry of a list: the lines from its dash to the next one.
    pub(super) fn entry(&self, list: &str, index: usize) -> Self {
        let path = format!("{list}[{index}]");
        let indent = |line: &str| line.len() - line.trim_start().len();
        let lines: Vec<&str> = self.text.lines().collect();
        let Some(head) = lines.iter().position(|line| line.starts_with(&format!("{list}:"))) else {
            return Self { path, ..self.clone() };
        };
        let inside = |line: &&&str| {
            line.trim_start().starts_with('-') || line.starts_with([' ', '#']) || line.is_empty()
        };
        let body = lines[head + 1..].iter().take_while(inside);
        let dashes = body.enumerate().filter(|(_, line)| line.trim_start().starts_with("- "));
        let dashes: Vec<(usize, usize)> = dashes.map(|(n, line)| (head + 1 + n, indent(line))).collect();
        let outer = dashes.first().map_or(0, |(_, indent)| *indent);
        let mut starts = dashes.iter().filter(|(_, indent)| *indent == outer).map(|(n, _)| *n).skip(index);
        let Some(start) = starts.next() else { return Self { path, ..self.clone() } };
        let end = starts.next().unwrap_or(head + 1 + lines[head + 1..].iter().take_while(inside).count());
        let offset = |line: usize| lines[..line].iter().map(|line| line.len() + 1).sum::<usize>();
        let text = &self.text[offset(start)..offset(end).min(self.text.len())];
        Self { text, first_line: start + 1, fallback: Some(start + 1), path }
    }

    fn line(&self, key: &str) -> Option<usize> {
        let line = line_of_key(self.text, key).map(|line| line + self.first_line - 1);
        line.or(self.fallback)
    }

    /// A mistake in a field of the part.
    pub(super) fn mistake(&self, key: &str, found: impl std::fmt::Display, expected: &str) -> Mistake {
        let dot = if self.path.is_empty() { "" } else { "." };
        Mistake::new(self.line(key), format!("{}{dot}{key}", self.path), found, expected)
    }
}

/// The fields of one mapping.
pub(super) struct Fields<'a> {
    map: Mapping,
    pub(super) part: Part<'a>,
    asked: Vec<&'static str>,
    pub(super) mistakes: Vec<Mistake>,
}

const DURATION: &str = "a duration such as 1.5ms or 10s";

impl<'a> Fields<'a> {
    /// The fields of a value that is to be a mapping.
    pub(super) fn of(value: Value, part: Part<'a>) -> Self {
        let mut mistakes = Vec::new();
        let map = match value {
            Value::Mapping(map) => map,
            other => {
                let field = part.path.clone();
                mistakes.push(Mistake::new(part.line(""), field, shown(&other), "a mapping"));
                Mapping::new()
            }
        };
        Self { map, part, asked: Vec::new(), mistakes }
    }

    pub(super) fn value(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.map.get(key).cloned()
    }

    /// No fields at all.
    pub(super) fn empty() -> Self {
        Self::of(Value::Mapping(Mapping::new()), Part::whole(""))
    }

    /// Reads a mapping inside this one, if it is there.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let value = self.value(key)?;
        let mut part = self.part.clone();
        part.fallback = part.line(key);
        part.path = if part.path.is_empty() { key.to_owned() } else { format!("{}.{key}", part.path) };
        let mut inner = Self::of(value, part);
        let result = read(&mut inner);
        self.mistakes.extend(inner.finish());
        Some(result)
    }

    pub(super) fn wrong(&mut self, key: &str, found: impl std::fmt::Display, expected: &str) {
        self.mistakes.push(self.part.mistake(key, found, expected));
    }

    /// A text or a number as text. A missing one without a default is a mistake.
    pub(super) fn word(&mut self, key: &'static str, default: Option<&str>) -> String {
        let found = match self.value(key) {
            Some(Value::String(text)) => return text,
            Some(Value::Number(number)) => return number.to_string(),
            Some(other) => shown(&other),
            None => match default {
                Some(default) => return default.to_owned(),
                None => "nothing".to_owned(),
            },
        };
        self.wrong(key, found, "a word or a number");
        String::new()
    }

    /// Reads a field that `read` understands.
    pub(super) fn parsed<T: Default>(
        &mut self,
        key: &'static str,
        default: Option<&str>,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        let before = self.mistakes.len();
        let word = self.word(key, default);
        if self.mistakes.len() > before {
            return T::default();
        }
        read(&word).unwrap_or_else(|| {
            self.wrong(key, format!("{word:?}"), expected);
            T::default()
        })
    }

    /// A duration in nanoseconds.
    pub(super) fn duration(&mut self, key: &'static str, default: Option<&str>) -> u64 {
        self.parsed(key, default, DURATION, parse_duration)
    }

    /// A duration, if the field is there.
    pub(super) fn duration_if_given(&mut self, key: &'static str) -> Option<u64> {
        self.value(key)?;
        Some(self.duration(key, None))
    }

    /// A duration above zero.
    pub(super) fn span(&mut self, key: &'static str, default: Option<&str>) -> u64 {
        let expected = format!("{DURATION}, above 0");
        self.parsed(key, default, &expected, |text| parse_duration(text).filter(|ns| *ns > 0))
    }

    /// A number above zero.
    pub(super) fn count(&mut self, key: &'static str, default: Option<&str>) -> u32 {
        let read = |text: &str| text.parse().ok().filter(|count| *count > 0);
        self.parsed(key, default, "a whole number above 0", read)
    }

    /// Notes the keys that were not asked for. Returns all mistakes.
    pub(super) fn finish(mut self) -> Vec<Mistake> {
        let keys: Vec<Value> = self.map.keys().cloned().collect();
        for key in keys {
            let word = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
            if !self.asked.contains(&word.as_str()) {
                let expected = format!("only {}", self.asked.join(", "));
                self.wrong(&word, format!("unknown key {word:?}"), &expected);
            }
        }
        self.mistakes
    }
}
