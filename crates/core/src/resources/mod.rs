//! The resource file: the clients of a GPU with their requests, limits and memory.
//!
//! Two notations, distinguished by the first word: Gemini's (`N`, then N lines `NAME REQUEST LIMIT GPU_MEM`), read
//! unchanged, and YAML (`clients:` with a list). If any entry is invalid, the result lists every mistake.

mod check;
mod edit;
mod gemini;
mod yaml;

pub use check::parse_bytes;
pub use edit::{EditError, set_suspended};
pub use yaml::{line_of_key, shown};

use crate::ledger::{Class, ClientSpec};
use crate::share::Share;
use std::fmt;

/// Longest client name in bytes: the room in a frame of 80 bytes beside the smallest payload.
pub const NAME_MAX: usize = 63;

/// One client of the resource file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEntry {
    /// Unique name, 1..=63 bytes of graphic ASCII.
    pub name: String,
    /// Guaranteed share. The requests of all clients add up to at most one GPU.
    pub request: Share,
    /// Largest share: above zero, at least the request.
    pub limit: Share,
    /// Memory that its processes may use together, bytes.
    pub memory: u64,
    /// Grants with deadlines, or an unlimited grant.
    pub class: Class,
    /// Latency objective, nanoseconds; 0: none. Only of a latency-critical client.
    pub slo_ns: u64,
    /// Its memory may leave the GPU for that of others. Not of a latency-critical client.
    pub overcommit: bool,
    /// It gets no grants, and memory that may leave the GPU does.
    pub suspended: bool,
}

impl ClientEntry {
    /// The specification for the token ledger.
    pub const fn spec(&self) -> ClientSpec {
        ClientSpec { request: self.request, limit: self.limit, class: self.class }
    }
}

/// Options for reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Lines of Gemini's notation have LIMIT before REQUEST, as KubeShare 2.0 writes them.
    pub limit_first: bool,
}

/// Reads a resource file in either notation. The clients are in the order of the file.
/// Errors: every mistake in the file, with its place, the value found and the values expected.
pub fn parse(text: &str, reading: ParseOptions) -> Result<Vec<ClientEntry>, Mistakes> {
    let first = text.split_whitespace().next().unwrap_or("");
    let is_yaml = first.contains(':') || first.starts_with(['#', '-', '{', '%']);
    let (entries, mut mistakes) = if is_yaml {
        let (_, entries, mistakes) = yaml::read(text, &[]);
        (entries, mistakes)
    } else {
        gemini::read(text, reading)
    };
    let clients = check::check(entries, reading, &mut mistakes);
    Mistakes::none_or(mistakes).map(|()| clients)
}

/// Reads the clients of a YAML document that may have the keys `others` beside `clients`. Returns the clients, the document
/// and the mistakes so far: the caller adds those of the other keys, and uses the clients only if there is none.
pub fn parse_beside(text: &str, others: &[&str]) -> (Vec<ClientEntry>, serde_yaml::Mapping, Vec<Mistake>) {
    let (document, entries, mut mistakes) = yaml::read(text, others);
    let clients = check::check(entries, ParseOptions::default(), &mut mistakes);
    (clients, document, mistakes)
}

/// The place of an entry, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    line: Option<usize>,
    /// Position in the notation, e.g. `clients[2]`.
    path: String,
}

impl Place {
    /// A mistake in a field of the entry.
    fn mistake(&self, field: &str, found: impl fmt::Display, expected: &str) -> Mistake {
        Mistake::new(self.line, format!("{}.{field}", self.path), found, expected)
    }
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
    /// A mistake in a field.
    pub fn new(
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
    /// `Ok` if there is no mistake.
    /// Errors: all of them, in the order of the lines.
    pub fn none_or(mut mistakes: Vec<Mistake>) -> Result<(), Self> {
        mistakes.sort_by_key(|mistake| mistake.line);
        if mistakes.is_empty() { Ok(()) } else { Err(Self(mistakes)) }
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

#[cfg(test)]
mod tests;
