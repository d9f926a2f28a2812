//! `sluice trace`: what a pod-manager decides and what follows, for some seconds, as a file for Perfetto.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use sluice_pod_manager::trace::{TraceEvent, read_trace, write_chrome};

/// Where the node agent has the managers' trace sockets.
const FOLDER: &str = "/var/lib/sluice/control";

/// Flags of `sluice trace`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Trace socket of a pod-manager: its flag --trace [default: the only *.trace in /var/lib/sluice/control]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Length of the trace, at most 600
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    seconds: f64,
    /// File to write, in Chrome's trace event format; `-`: standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Reads a trace and writes it. What it contains is reported on standard error.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let socket = arguments.socket.clone().map_or_else(|| only_socket(Path::new(FOLDER)), Ok)?;
    let events = read_trace(&socket, Duration::from_secs_f64(arguments.seconds))
        .with_context(|| format!("cannot read a trace from {}", socket.display()))?;
    let place = arguments.output.display();
    let written = if arguments.output == Path::new("-") {
        write_to(&events, io::stdout().lock())
    } else {
        File::create(&arguments.output).and_then(|file| write_to(&events, file))
    };
    written.with_context(|| format!("cannot write {place}"))?;
    eprintln!("{}", summary(&events));
    Ok(())
}

fn write_to(events: &[TraceEvent], out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write_chrome(events, &mut out)?;
    out.flush()
}

fn summary(events: &[TraceEvent]) -> String {
    let (mut clients, mut lost) = (0, 0);
    for event in events {
        match event {
            TraceEvent::Client { .. } => clients += 1,
            TraceEvent::Lost { count, .. } => lost += count,
            _ => {}
        }
    }
    let lost = if lost > 0 {
        format!(", {lost} were lost because they were not read in time")
    } else {
        String::new()
    };
    format!("{} events of {clients} clients{lost}; https://ui.perfetto.dev opens the file", events.len())
}

fn only_socket(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = folder.read_dir().with_context(|| {
        format!("cannot look for trace sockets in {}; name one by --socket", folder.display())
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "trace")).collect();
    sockets.sort();
    match sockets.as_slice() {
        [socket] => Ok(socket.clone()),
        [] => bail!("there is no trace socket in {}; name one by --socket", folder.display()),
        several => {
            let several: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            bail!("several managers serve traces; name one by --socket: {}", several.join(", "))
        }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if seconds > 0.0 && seconds <= 600.0 {
        Ok(seconds)
    } else {
        Err(format!("{text} is not above 0 and at most 600"))
    }
}

#[cfg(test)]
mod tests;
