//! Prints a page and ends.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::arguments::Format;
use crate::text::{Line, layout};

/// Writes the page. If the reader has closed its end, as `head` does, the rest is not wanted.
pub(crate) fn print(
    to: &mut impl Write,
    format: Format,
    page: &impl Serialize,
    lines: impl FnOnce() -> Vec<Line>,
) -> io::Result<()> {
    let written = match format {
        Format::Text => layout(&lines()).iter().try_for_each(|line| writeln!(to, "{line}")),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *to, page).map_err(io::Error::from).and_then(|()| writeln!(to))
        }
    };
    match written.and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
