//! `sluice load be|lc`: flags for configurations of [`sluice_load`].

use std::io;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use sluice_load::be::{self, BeConfig};
use sluice_load::lc::{self, LcConfig, TokenPattern};
use sluice_load::stop::StopCondition;

use crate::quantity::parse_bytes;

/// The generators.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Best effort: kernels that fill the GPU, back to back
    Be(Be),
    /// Latency-critical: a small request every period
    Lc(Lc),
}

#[derive(Debug, Args)]
struct Common {
    /// Device ordinal
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// End after this many seconds, counted from the first kernel
    #[arg(long)]
    seconds: Option<f64>,
    /// End after this many launches
    #[arg(long)]
    count: Option<u64>,
    /// End also when standard input closes
    #[arg(long)]
    stop_with_stdin: bool,
    /// Words in the buffer whose checksum is printed at the end
    #[arg(long, default_value_t = 8192)]
    elements: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Be {
    #[command(flatten)]
    common: Common,
    /// Time of one kernel on an H200
    #[arg(long, default_value_t = 1000.0)]
    duration_us: f64,
    /// Kernels in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Blocks of 1024 threads per kernel
    #[arg(long, default_value_t = be::BLOCKS)]
    blocks: u32,
    /// Device memory to hold, such as 2Gi
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    memory: u64,
    /// Allocate while running until not one more byte is granted
    #[arg(long)]
    grow: bool,
    /// Once set up, wait for a line on standard input
    #[arg(long, requires = "stop_with_stdin")]
    start_with_mark: bool,
    /// Launch nothing after this many seconds, but keep running
    #[arg(long, value_name = "SECONDS")]
    idle_after: Option<f64>,
    /// Launch for this long, then pause for --gap-ms, and again
    #[arg(long, requires = "gap_ms")]
    burst_ms: Option<f64>,
    /// Pause between bursts
    #[arg(long, requires = "burst_ms")]
    gap_ms: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct Lc {
    #[command(flatten)]
    common: Common,
    /// Time of a request's kernel on an H200
    #[arg(long, default_value_t = 100.0)]
    duration_us: f64,
    /// Time between two requests
    #[arg(long, default_value_t = 10_000.0)]
    period_us: f64,
    /// Move each arrival by up to this part of the period, at random
    #[arg(long, default_value_t = 0.0)]
    jitter: f64,
    /// A request answered later than this is missed; the period if absent
    #[arg(long)]
    deadline_us: Option<f64>,
    /// Report the latency of the requests of each such period, instead of the latency of all requests twice a second
    #[arg(long, value_name = "SECONDS")]
    report_every: Option<f64>,
    /// Blocks of 1024 threads per kernel
    #[arg(long, default_value_t = lc::BLOCKS)]
    blocks: u32,
    /// Bytes of a request and of its answer
    #[arg(long, default_value = "64Ki", value_parser = parse_bytes)]
    payload: u64,
    /// After each request's first answer, generate so many tokens as a language model does: launches, a copy of 8 bytes, a wait
    #[arg(long)]
    tokens: Option<u32>,
    /// GPU time of a token on an H200
    #[arg(long, default_value_t = 1000.0, requires = "tokens")]
    token_us: f64,
    /// Kernels of a token: 1 stands for a graph, 300 for a program that launches each operation
    #[arg(long, default_value_t = 1, requires = "tokens", value_parser = clap::value_parser!(u32).range(1..=1000))]
    launches: u32,
    /// The host's own time before each launch of a token
    #[arg(long, default_value_t = 0.0, requires = "tokens")]
    launch_gap_us: f64,
    /// The host's own time between an answer and the next token
    #[arg(long, default_value_t = 50.0, requires = "tokens")]
    token_gap_us: f64,
}

/// Runs the generator; records go to standard output.
pub(crate) fn run(load: &Load) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match load {
        Load::Be(flags) => Ok(be::run(&flags.config()?, &mut out)?),
        Load::Lc(flags) => Ok(lc::run(&flags.config()?, &mut out)?),
    }
}

impl Common {
    fn stop(&self) -> anyhow::Result<StopCondition> {
        let after = self.seconds.map(|seconds| time("--seconds", seconds)).transpose()?;
        let stop = StopCondition::new(after, self.count);
        if self.stop_with_stdin { stop.with_stdin().context("cannot watch standard input") } else { Ok(stop) }
    }
}

impl Be {
    fn config(&self) -> anyhow::Result<BeConfig> {
        let bursts = self.burst_ms.zip(self.gap_ms);
        let bursts = bursts
            .map(|(burst, gap)| anyhow::Ok((time("--burst-ms", burst / 1e3)?, time("--gap-ms", gap / 1e3)?)));
        Ok(BeConfig {
            device: self.common.device,
            duration: time("--duration-us", self.duration_us / 1e6)?,
            depth: self.depth,
            blocks: self.blocks,
            elements: self.common.elements,
            memory: self.memory,
            grow: self.grow,
            idle_after: self.idle_after.map(|seconds| time("--idle-after", seconds)).transpose()?,
            bursts: bursts.transpose()?,
            start_with_mark: self.start_with_mark,
            stop: self.common.stop()?,
        })
    }
}

impl Lc {
    fn config(&self) -> anyhow::Result<LcConfig> {
        Ok(LcConfig {
            device: self.common.device,
            duration: time("--duration-us", self.duration_us / 1e6)?,
            period: time("--period-us", self.period_us / 1e6)?,
            jitter: self.jitter,
            deadline: self.deadline_us.map(|us| time("--deadline-us", us / 1e6)).transpose()?,
            blocks: self.blocks,
            elements: self.common.elements,
            tokens: self.tokens.map(|tokens| self.token_pattern(tokens)).transpose()?,
            report_every: self.report_every.map(|seconds| time("--report-every", seconds)).transpose()?,
            payload: u32::try_from(self.payload).context("--payload is more than 4 GiB")?,
            stop: self.common.stop()?,
        })
    }

    fn token_pattern(&self, tokens: u32) -> anyhow::Result<TokenPattern> {
        Ok(TokenPattern {
            tokens,
            duration: time("--token-us", self.token_us / 1e6)?,
            launches: self.launches,
            launch_gap: time("--launch-gap-us", self.launch_gap_us / 1e6)?,
            gap: time("--token-gap-us", self.token_gap_us / 1e6)?,
        })
    }
}

fn time(flag: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{flag} is not a time"))
}
