//! Prometheus's text format, read line by line. The parsers on crates.io split labels at commas, and the name of a GPU's model may
//! contain one.

use std::borrow::Cow;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample<'a> {
    /// Name of the series.
    pub(crate) name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Value.
    pub(crate) value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label; `None` if it is absent or empty, which mean the same in Prometheus.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (key, after) = rest.split_once("=\"")?;
                let (value, after) = quoted(after)?;
                labels.push((key.trim(), value));
                rest = after.strip_prefix(',').unwrap_or(after).trim_start();
            }
            rest = rest.get(1..)?;
        }
        // A time stamp may follow the value.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }
}

/// The samples of a page. Comments and lines that are no samples are skipped.
pub(crate) fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(Sample::parse)
}

/// The text before the closing quote without its escapes, and the rest behind the quote.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text.get(end..)?.starts_with('"') {
        return Some((text.get(..end)?.into(), text.get(end + 1..)?));
    }
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value.into(), text.get(at + 1..)?)),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests;
