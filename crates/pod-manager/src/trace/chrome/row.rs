//! One event of Chrome's format.

use serde_json::{Value, json};
use std::io::{self, Write};

/// The kind of an event.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// A slice of this length, nanoseconds. Slices of a track are in each other or apart.
    Complete(u64),
    /// The begin of a slice with this number, on a track of its name.
    Begin(u64),
    /// The end of the slice with this number.
    End(u64),
    /// A point in time.
    Instant,
    /// The name of a process or a track.
    Metadata,
}

/// One event.
pub(super) struct Row {
    phase: Phase,
    /// Process and track.
    track: (u64, u64),
    at_ns: u64,
    name: String,
    category: &'static str,
    args: Value,
}

impl Row {
    pub(super) fn new(phase: Phase, track: (u64, u64), at_ns: u64, name: &str) -> Self {
        Self { phase, track, at_ns, name: name.to_owned(), category: "sluice", args: json!({}) }
    }

    /// The name of a process, or of a track.
    pub(super) fn name(kind: &str, pid: u64, tid: u64, name: &str) -> Self {
        Self { args: json!({ "name": name }), ..Self::new(Phase::Metadata, (pid, tid), 0, kind) }
    }

    pub(super) fn with(self, category: &'static str, args: Value) -> Self {
        Self { category, args, ..self }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { phase, track: (pid, tid), at_ns, name, category, args } = self;
        let letter = match phase {
            Phase::Complete(_) => 'X',
            Phase::Begin(_) => 'b',
            Phase::End(_) => 'e',
            Phase::Instant => 'i',
            Phase::Metadata => 'M',
        };
        write!(out, "{{\"ph\":\"{letter}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},", Micros(*at_ns))?;
        match phase {
            Phase::Complete(length_ns) => write!(out, "\"dur\":{},", Micros(*length_ns))?,
            // Perfetto puts a slice with an `id` alone beside all processes, and one with a local `id2` among those of its process.
            Phase::Begin(id) | Phase::End(id) => write!(out, "\"id2\":{{\"local\":\"{id}\"}},")?,
            Phase::Instant => write!(out, "\"s\":\"t\",")?,
            Phase::Metadata => {}
        }
        // A name may contain any character.
        let name = Value::from(name.as_str());
        write!(out, "\"cat\":\"{category}\",\"name\":{name},\"args\":{args}}}")
    }
}

/// Microseconds with the nanoseconds as decimals, as the format has them.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
