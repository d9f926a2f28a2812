//! Mistakes in a resource file: place, value found, values expected.

use std::fmt;

/// The place of an entry, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: Option<usize>,
    /// Position in the notation, e.g. `clients[2]`.
    pub(super) path: String,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line, from 1, where it is known.
    pub line: Option<usize>,
    /// The field, e.g. `clients[1].limit` or `LIMIT of be-b`.
    pub field: String,
    /// The value found.
    pub found: String,
    /// The values expected, possibly with a hint.
    pub expected: String,
}

impl Mistake {
    pub(super) fn new(
        line: Option<usize>,
        field: impl Into<String>,
        found: impl fmt::Display,
        expected: &str,
    ) -> Self {
        Self { line, field: field.into(), found: found.to_string(), expected: expected.to_owned() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        write!(f, "{}: found {}, expected {}", self.field, self.found, self.expected)
    }
}

/// All mistakes of one file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(super) fn new(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.line);
        Self(mistakes)
    }

    /// Every mistake, in the order of the lines.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} mistake{}", if count == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}
