//! The log of a daemon: one line for each event on standard error, filtered by `RUST_LOG` (default `info`), in the format that
//! `SLUICE_LOG_FORMAT` names (default `text`).
//!
//! No thread waits for the reader of standard error. Lines go to a thread of their own through a queue of [`QUEUED_LINES`]; while the queue
//! is full, lines are dropped and counted. The next line that is written reports how many were dropped.
//!
//! ```no_run
//! sluice_daemon::log::init(sluice_daemon::log::Format::from_environment()?)?;
//! // … the daemon …
//! sluice_daemon::log::flush();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod lossy;

use lossy::LossyLog;
pub use lossy::QUEUED_LINES;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How long the end of a daemon waits for the reader of its log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LOG: OnceLock<LossyLog> = OnceLock::new();

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(
    serialize_all = "lowercase",
    parse_err_ty = UnknownFormat,
    parse_err_fn = unknown_format
)]
pub enum Format {
    /// Time, level, module, message and fields, for people.
    #[default]
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

impl Format {
    /// The format that `SLUICE_LOG_FORMAT` names. It is a variable as `RUST_LOG` is, so that pod-managers inherit it from the node agent.
    /// Errors: it names none.
    pub fn from_environment() -> Result<Self, UnknownFormat> {
        match std::env::var_os("SLUICE_LOG_FORMAT").filter(|word| !word.is_empty()) {
            Some(word) => word.to_string_lossy().parse(),
            None => Ok(Self::default()),
        }
    }
}

/// A word that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SLUICE_LOG_FORMAT is {0:?}, expected text or json")]
pub struct UnknownFormat(String);

fn unknown_format(word: &str) -> UnknownFormat {
    UnknownFormat(word.to_owned())
}

/// Sends the events of this process to standard error.
/// Errors: the thread that writes them cannot be started.
pub fn init(format: Format) -> io::Result<()> {
    let log = LossyLog::start(io::stderr(), report(format))?;
    let log = LOG.get_or_init(|| log);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are useful at a terminal only, not in `kubectl logs`.
    let ansi = io::stderr().is_terminal();
    let writer = || log.writer();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(writer);
    match format {
        Format::Text => lines.init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Waits until all lines so far are written, for a second at most. Without [`init`] it returns at once.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(FLUSH_TIMEOUT);
    }
}

/// The line that reports dropped lines.
fn report(format: Format) -> fn(u64) -> String {
    match format {
        Format::Text => |dropped| format!("{dropped} log lines were dropped because the log was not read\n"),
        Format::Json => |dropped| {
            let message = "log lines were dropped because the log was not read";
            format!("{{\"level\":\"WARN\",\"message\":\"{message}\",\"dropped\":{dropped}}}\n")
        },
    }
}

/// Lines that were dropped because standard error was not read.
pub fn dropped_lines() -> u64 {
    LOG.get().map_or(0, LossyLog::dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_one_of_two_words() {
        assert_eq!("json".parse(), Ok(Format::Json));
        assert_eq!("text".parse(), Ok(Format::Text));
        let wrong = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(wrong, "SLUICE_LOG_FORMAT is \"yaml\", expected text or json");
    }
}
