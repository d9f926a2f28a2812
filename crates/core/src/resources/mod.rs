//! The resource file: the clients of a GPU with their requests, limits and memory.
//!
//! Two notations, distinguished by the first word: Gemini's (`N`, then N lines `NAME REQUEST LIMIT GPU_MEM`), read
//! unchanged, and YAML (`clients:` with a list). If any entry is invalid, the result lists every mistake.

mod check;
mod gemini;
mod mistake;
mod quantity;
mod yaml;

pub use mistake::{Mistake, Mistakes};
pub use quantity::parse_bytes;

use crate::ledger::{Class, ClientSpec};
use crate::share::Share;

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
}

impl ClientEntry {
    /// The specification for the token ledger.
    #[must_use]
    pub const fn spec(&self) -> ClientSpec {
        ClientSpec { request: self.request, limit: self.limit, class: self.class, weight: 1 }
    }
}

/// A resource file without mistakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// In the order of the file.
    pub clients: Vec<ClientEntry>,
}

/// Options for reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Lines of Gemini's notation have LIMIT before REQUEST, as KubeShare 2.0 writes them.
    pub limit_first: bool,
}

/// Reads a resource file in either notation.
///
/// # Errors
/// Every mistake in the file, with its place, the value found and the values expected.
pub fn parse(text: &str, reading: ParseOptions) -> Result<Resources, Mistakes> {
    let first = text.split_whitespace().next().unwrap_or("");
    let is_yaml = first.contains(':') || first.starts_with(['#', '-', '{', '%']);
    let (entries, mut mistakes) = if is_yaml { yaml::read(text) } else { gemini::read(text, reading) };
    let clients = check::check(entries, reading, &mut mistakes);
    if mistakes.is_empty() { Ok(Resources { clients }) } else { Err(Mistakes::new(mistakes)) }
}

#[cfg(test)]
mod tests;
