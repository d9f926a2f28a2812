//! `sluice check`: the program that `helm test` runs in a pod. It uses the GPU as any program does, and compares the GPU and its
//! memory with the pod's request.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use sluice_load::be::{self, BeConfig};
use sluice_load::record::Record;
use sluice_load::stop::StopCondition;

use sluice_test_bed::http;

use crate::quantity::{bytes, parse_bytes};

/// Flags of `sluice check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Memory that the pod requested
    #[arg(long, value_parser = parse_bytes)]
    memory: u64,
    /// How long to run kernels
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Also ask this address of the form http://HOST:PORT/PATH, which must answer 200
    #[arg(long, value_name = "URL")]
    answers: Vec<String>,
    /// How many seconds an address may take: during a rollout a service still names pods that are ending
    #[arg(long, default_value_t = 30)]
    patience: u64,
}

/// Time between two requests to the same address.
const PAUSE: Duration = Duration::from_millis(250);

/// Checks the pod and prints the results.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    for url in &arguments.answers {
        let (address, path) = parts(url)?;
        let until = Instant::now() + Duration::from_secs(arguments.patience);
        let again = || {
            sleep(PAUSE);
            Instant::now() < until
        };
        retry(|| http::get(address, path), again).with_context(|| format!("{url} does not answer"))?;
        eprintln!("ok: {url} answers");
    }
    let mut printed = Vec::new();
    be::run(&load(Duration::from_secs(arguments.seconds)), &mut printed)?;
    let printed = String::from_utf8(printed).context("the load's records are not text")?;
    let records: Vec<Record> = printed.lines().map(Record::parse).collect::<Result<_, _>>()?;
    for line in compare(&records, arguments.memory)? {
        eprintln!("ok: {line}");
    }
    Ok(())
}

/// Calls `ask` until it succeeds or `again` returns `false`. Returns the last error in that case.
fn retry<T>(
    mut ask: impl FnMut() -> anyhow::Result<T>,
    mut again: impl FnMut() -> bool,
) -> anyhow::Result<T> {
    loop {
        match ask() {
            Err(_) if again() => {}
            outcome => return outcome,
        }
    }
}

/// Kernels, and memory until not one more byte is granted.
fn load(time: Duration) -> BeConfig {
    BeConfig {
        device: 0,
        duration: Duration::from_millis(1),
        depth: 4,
        blocks: be::BLOCKS,
        elements: 8192,
        memory: 0,
        grow: true,
        idle_after: None,
        bursts: None,
        start_with_mark: false,
        stop: StopCondition::new(Some(time), None),
    }
}

/// The facts that were confirmed, or the first one that was wrong.
fn compare(records: &[Record], memory: u64) -> anyhow::Result<Vec<String>> {
    let Some(Record::Started { device, memory_total, .. }) = records.first() else {
        bail!("the load did not start")
    };
    let Some(Record::BeFinal { counts, buffer, errors }) = records.last() else {
        bail!("the load did not end")
    };
    ensure!(errors.is_empty(), "the driver reported {}", errors.join("; "));
    ensure!(
        *memory_total == memory,
        "CUDA shows {} of memory where {} were requested: is libsluice.so loaded (/etc/ld.so.preload)?",
        bytes(*memory_total),
        bytes(memory),
    );
    ensure!(
        counts.peak_bytes <= memory && counts.denied > 0,
        "{} were granted where {} were requested",
        bytes(counts.peak_bytes),
        bytes(memory),
    );
    ensure!(counts.completed == counts.launches, "{} kernels were lost", counts.launches - counts.completed);
    ensure!(buffer.is_after(counts.launches), "the kernels' result is wrong");
    Ok(vec![
        format!("{device}, {} of memory and not a byte more", bytes(memory)),
        format!("{} kernels in {:.1} s, and their result is right", counts.completed, counts.seconds),
    ])
}

/// Address and path of a URL.
fn parts(url: &str) -> anyhow::Result<(&str, &str)> {
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} does not begin with http://"))?;
    let slash = rest.find('/').with_context(|| format!("{url} has no path"))?;
    Ok(rest.split_at(slash))
}

#[cfg(test)]
mod tests;
