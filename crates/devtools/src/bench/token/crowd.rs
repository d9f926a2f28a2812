//! `sluice-dev bench token --clients N`: what a pod-manager costs when many clients request grants, and how long an answer takes.
//!
//! Each client is a process without the hook that requests a grant, keeps it to the deadline, returns it and requests the next. One more
//! client asks for its memory limit all the while.

use std::fs;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use sluice_comm::RequestBody;
use sluice_load::samples::Samples;
use sluice_test_bed::{Interrupts, Metrics, Output, Process, TestBed};

use super::{Common, Percentiles, WireClient, start_bed, worker_command};

/// The client that asks for its memory limit.
const PROBE: &str = "probe";
/// Pause between two questions: the probe does not load the manager itself.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
/// How long the clients may take to attach.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const MEASURED: Duration = Duration::from_secs(10);
/// Longer than the measurement; the clients are killed at its end.
const CLIENT_SECONDS: &str = "1000";
/// Clock ticks of /proc/PID/stat in a second, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Flags of the case with many clients.
#[derive(Debug, Args)]
pub(crate) struct CrowdArguments {
    /// Instead: so many clients that request grants all the time; CPU time of the manager, and time of an answer about memory
    #[arg(long, value_name = "CLIENTS")]
    clients: Option<usize>,
    /// Length of their grants
    #[arg(long, value_name = "MS", default_value_t = 50, requires = "clients")]
    grant_ms: u32,
}

impl CrowdArguments {
    pub(crate) fn clients(&self) -> Option<usize> {
        self.clients
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct CrowdFigures {
    clients: usize,
    grant_ms: u32,
    grants_per_second: f64,
    /// Part of one core that the manager used.
    manager_cores: f64,
    memory_answer_us: Percentiles,
    latest_memory_answer_us: f64,
    memory_answers: usize,
}

/// Measures and prints the figures.
pub(crate) fn measure(
    common: &Common,
    crowd: &CrowdArguments,
    clients: usize,
    interrupts: &Interrupts,
) -> anyhow::Result<CrowdFigures> {
    let names: Vec<String> = (0..clients).map(|number| format!("crowd-{number}")).collect();
    let lines = names.iter().map(|name| (name.as_str(), 0.0, 1.0, 1 << 20));
    let mut options = common.options(&lines.chain([(PROBE, 0.0, 1.0, 1 << 20)]).collect::<Vec<_>>());
    for flag in ["--base-quota-ms", "--min-quota-ms", "--max-quota-ms"] {
        options.manager_flags.extend([flag.to_owned(), crowd.grant_ms.to_string()]);
    }
    options.manager_flags.extend(["--max-connections".to_owned(), (clients + 64).to_string()]);
    let bed = start_bed(options, || interrupts.pause())?;
    let start = |name: &String| {
        let mut command = worker_command("token-peer")?;
        command.args(["--name", name, "--to-deadline", "--seconds", CLIENT_SECONDS, "--manager"]);
        command.arg(bed.manager_socket());
        Process::start(name, command, bed.path(), Output::Log)
    };
    let _crowd = names.iter().map(start).collect::<anyhow::Result<Vec<Process>>>()?;
    wait_until_attached(&bed, clients, interrupts)?;
    let mut probe = WireClient::connect(&bed.manager_socket(), PROBE)?;
    probe.attach_memory()?;
    let grants = || Ok::<f64, anyhow::Error>(scrape(&bed)?.sum("sluice_grants_total", &[]).unwrap_or(0.0));
    let (grants_before, cpu_before, begun) = (grants()?, cpu_seconds(&bed)?, Instant::now());
    let mut answers = Vec::new();
    while begun.elapsed() < MEASURED {
        interrupts.check()?;
        let asked = Instant::now();
        probe.ask(RequestBody::MemLimit)?;
        answers.push(u64::try_from(asked.elapsed().as_nanos())?);
        thread::sleep(PROBE_PAUSE);
    }
    let (cpu, seconds) = (cpu_seconds(&bed)? - cpu_before, begun.elapsed().as_secs_f64());
    let latest = answers.iter().max().copied().unwrap_or(0);
    let samples: Samples = answers.into_iter().collect();
    let figures = CrowdFigures {
        clients,
        grant_ms: crowd.grant_ms,
        grants_per_second: (grants()? - grants_before) / seconds,
        manager_cores: cpu / seconds,
        memory_answer_us: Percentiles::of(&samples, 1e3),
        latest_memory_answer_us: latest as f64 / 1e3,
        memory_answers: samples.len(),
    };
    figures.print()?;
    Ok(figures)
}

impl CrowdFigures {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let Percentiles { p50, p99 } = self.memory_answer_us;
        writeln!(out, "{} clients request grants of {} ms all the time", self.clients, self.grant_ms)?;
        writeln!(out, "  grants per second               {:10.0}", self.grants_per_second)?;
        writeln!(out, "  manager, part of a core         {:10.1} %", self.manager_cores * 100.0)?;
        writeln!(out, "  answer about memory, p50 / p99  {p50:10.0} / {p99:.0} µs")?;
        writeln!(
            out,
            "  the latest of {:6}            {:10.0} µs",
            self.memory_answers, self.latest_memory_answer_us
        )
    }
}

fn wait_until_attached(bed: &TestBed, clients: usize, interrupts: &Interrupts) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let attached = scrape(bed)?.sum("sluice_processes", &[]).unwrap_or(0.0);
        if attached >= clients as f64 {
            return Ok(());
        }
        if Instant::now() > deadline {
            anyhow::bail!("{attached} of {clients} clients have attached within {START_TIMEOUT:?}");
        }
        interrupts.pause()?;
        thread::sleep(Duration::from_millis(500));
    }
}

fn scrape(bed: &TestBed) -> anyhow::Result<Metrics> {
    Metrics::scrape_within(Duration::from_secs(20), bed.metrics_address())
}

/// CPU time that the manager has used.
fn cpu_seconds(bed: &TestBed) -> anyhow::Result<f64> {
    let pid = bed.manager_pid().context("there is no pod-manager")?;
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in brackets may contain blanks. User and system time are the 14th and 15th fields, and the name is the second.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>();
    Ok(ticks.with_context(|| format!("{path} has no CPU times"))? as f64 / TICKS_PER_SECOND)
}
