//! `sluice suspend` and `sluice resume`: set and remove the key `suspended` of a client in a resource file, which the pod-manager reads again
//! by itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use sluice_core::resources::{ParseOptions, parse, set_suspended};
use sluice_test_bed::Metrics;

/// How often the metrics are read.
const POLL: Duration = Duration::from_millis(20);
/// How long one reading of the metrics may take.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// Flags of `sluice suspend` and `sluice resume`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Name of the client in the resource file
    client: String,
    /// The pod-manager's resource file, in YAML; it is replaced as a whole, and all else in it stays as it is
    #[arg(long, value_name = "FILE")]
    resource_file: PathBuf,
    /// Wait until the pod-manager has done it, at most so long: the client gets no grants and its memory has left, or all of it is back
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "metrics")]
    wait: Option<Duration>,
    /// Address of the pod-manager's metrics: its flag --metrics
    #[arg(long, value_name = "ADDRESS", requires = "wait")]
    metrics: Option<SocketAddr>,
}

/// Suspends a client, or resumes it.
pub(crate) fn run(arguments: &Arguments, suspended: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    let (client, path) = (&arguments.client, &arguments.resource_file);
    let place = path.display();
    // A link stays, and what it leads to is replaced.
    let path = fs::canonicalize(path).with_context(|| format!("cannot read {place}"))?;
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {place}"))?;
    let edited =
        set_suspended(&text, client, suspended).map_err(|error| anyhow!("resource file {place}: {error}"))?;
    let state = if suspended { "suspended" } else { "not suspended" };
    match edited {
        Some(edited) => {
            replace(&path, &edited).with_context(|| format!("cannot replace {place}"))?;
            writeln!(out, "{client} is {state} in {place}")?;
        }
        None => writeln!(out, "{client} was {state} in {place} already")?,
    }
    if suspended && !may_leave(&text, client) {
        writeln!(out, "{client} has no overcommit: it gets no time, but its memory stays on the GPU")?;
    }
    if let (Some(within), Some(address)) = (arguments.wait, arguments.metrics) {
        let begun = Instant::now();
        wait(address, client, suspended, within)?;
        writeln!(out, "done after {:.2} s", begun.elapsed().as_secs_f64())?;
    }
    Ok(())
}

/// Whether the client's memory may leave the GPU, by a valid file.
fn may_leave(text: &str, client: &str) -> bool {
    let entries = parse(text, ParseOptions::default()).unwrap_or_default();
    entries.iter().any(|entry| entry.name == client && entry.overcommit)
}

/// Replaces a file by a rename, so that no reader sees a part of it. Its mode and its owner stay.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("the file has no folder")?;
    let metadata = fs::metadata(path)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(metadata.permissions())?;
    let owner = |file: &File| file.metadata().map(|found| (found.uid(), found.gid()));
    if owner(new.as_file())? != (metadata.uid(), metadata.gid()) {
        fchown(new.as_file(), Some(metadata.uid()), Some(metadata.gid()))?;
    }
    new.as_file().sync_all()?;
    new.persist(path)?;
    Ok(())
}

/// Waits until the metrics show that the client is suspended, or that all of its memory is back.
fn wait(address: SocketAddr, client: &str, suspended: bool, within: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        let metrics = Metrics::scrape_within(READ_WITHIN, address)
            .with_context(|| format!("cannot read http://{address}/metrics"))?;
        let is_suspended = metrics
            .of_client("sluice_client_suspended", client)
            .with_context(|| format!("http://{address}/metrics has no client {client:?}"))?;
        let [resident, swapped] = ["sluice_memory_resident_bytes", "sluice_memory_swapped_bytes"]
            .map(|series| metrics.of_client(series, client).unwrap_or(0.0));
        let has_left = is_suspended > 0.0 && resident == 0.0;
        let is_back = is_suspended == 0.0 && swapped == 0.0;
        if (suspended && has_left) || (!suspended && is_back) {
            return Ok(());
        }
        if Instant::now() >= end {
            let state = if is_suspended > 0.0 { "suspended" } else { "not suspended" };
            bail!(
                "not done after {} s: {client} is {state}, with {resident} bytes on the GPU and {swapped} on the host",
                within.as_secs_f64()
            );
        }
        std::thread::sleep(POLL);
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("found {text:?}, expected 0 to 3600 seconds"))
}
