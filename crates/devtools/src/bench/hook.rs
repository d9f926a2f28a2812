//! `sluice-dev bench hook`: what the hook adds to a launch. One process launches with and without the hook under real grants.

use std::io::{self, Write};

use serde::Serialize;

use super::launch_worker::{self, LaunchPath, LaunchTimes};
use super::requests::{self, Requests};
use super::syscall_tracer::SyscallTracer;
use super::{Common, answer, median, next_line, start_bed, worker_command};
use sluice_test_bed::{Interrupts, TestBed, Worker};

const CLIENT: &str = "bench";

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct HookFigures {
    gpu: String,
    /// One thread.
    #[serde(flatten)]
    one: LaunchTimes,
    threads16: LaunchTimes,
    /// What decides how long the hook's path takes on this machine.
    launch_path: LaunchPath,
    /// System calls of the launching thread per hooked launch, counted by a tracer; absent where tracing is not permitted. The
    /// median of blocks, so that a block in which the grant expired does not count.
    syscalls_per_launch: Option<f64>,
    /// The same of bare launches: the driver's own system calls.
    bare_syscalls_per_launch: Option<f64>,
    /// The calls of a latency-critical request, each the first of its kind since the GPU was idle.
    request: Requests,
}

/// Measures and prints the figures.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<HookFigures> {
    let bed = start_bed(common.options(&[(CLIENT, 1.0, 1.0, 8 << 30)]), || interrupts.pause())?;
    let (one, gpu): (LaunchTimes, _) = answer(&mut start(&bed, &["--rounds", "400"])?, interrupts)?;
    let (threads16, _): (LaunchTimes, String) =
        answer(&mut start(&bed, &["--rounds", "60", "--threads", "16"])?, interrupts)?;
    let launch_path: LaunchPath = answer(&mut start(&bed, &["--parts"])?, interrupts)?;
    let calls = |side| {
        let counted = count_calls(&bed, side, interrupts);
        counted.map_err(|why| eprintln!("system calls not counted: {why:#}")).ok()
    };
    let figures = HookFigures {
        gpu,
        syscalls_per_launch: calls("hooked"),
        bare_syscalls_per_launch: calls("bare"),
        one,
        threads16,
        launch_path,
        request: requests::measure(common, interrupts)?,
    };
    figures.print()?;
    requests::print(&figures.request)?;
    Ok(figures)
}

impl HookFigures {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "time per launch on {}, ns        p50      p99", self.gpu)?;
        for (threads, ns) in [("1 thread", &self.one), ("16 threads", &self.threads16)] {
            for (series, percentiles) in
                [("bare", ns.bare_ns), ("hooked", ns.hooked_ns), ("added", ns.added_ns)]
            {
                let (p50, p99) = (percentiles.p50, percentiles.p99);
                writeln!(out, "  {threads:10}  {series:20} {p50:10.1} {p99:10.1}")?;
            }
            writeln!(out, "  {threads:10}  {:20} {:10.1}", "bare against bare", ns.noise_ns)?;
        }
        self.launch_path.lines().iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        let [hooked, bare] = [self.syscalls_per_launch, self.bare_syscalls_per_launch]
            .map(|calls| calls.map_or("not counted".to_owned(), |calls| format!("{calls:.4}")));
        writeln!(out, "  system calls per launch: hooked {hooked}, bare {bare}")
    }
}

fn start(bed: &TestBed, flags: &[&str]) -> anyhow::Result<Worker> {
    let mut command = worker_command("hook-worker")?;
    command.arg("--hook").arg(bed.hook()).args(flags);
    bed.set_gpu(&mut command, CLIENT);
    bed.set_manager(&mut command, CLIENT);
    Worker::start("hook-worker", command, bed.path())
}

fn count_calls(bed: &TestBed, side: &str, interrupts: &Interrupts) -> anyhow::Result<f64> {
    let mut worker = start(bed, &["--counted", side])?;
    next_line(&mut worker, interrupts)?;
    let tracer = SyscallTracer::attach(worker.process.pid())?;
    worker.process.send_line("")?;
    let blocks = tracer.count(launch_worker::COUNTED_BLOCKS)?;
    let calls = median(blocks.iter().map(|calls| *calls as f64).collect());
    Ok(calls / launch_worker::BLOCK as f64)
}
