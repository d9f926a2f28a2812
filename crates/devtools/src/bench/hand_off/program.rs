//! A process under the hook that launches all the time, and records the launches that waited for the token.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sluice_load::memory::DeviceBuffer;
use sluice_load::record::write_line;
use sluice_load::session::Session;
use sluice_sys::clock::monotonic_ns;

use super::cpu::cpu_ns_of_threads;

/// A launch that took longer has waited for the token: the other process has held it meanwhile.
const WAITED_NS: u64 = 5_000_000;
/// Name of the hook's thread that ends grants.
const TRACKER: &str = "sluice-tracker";

/// Flags of the process.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    /// How long to launch
    #[arg(long)]
    seconds: f64,
    /// Iterations of the kernels
    #[arg(long)]
    iterations: u32,
}

/// A launch that waited: when it was called and when it returned, on CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Wait {
    pub(super) called: u64,
    pub(super) returned: u64,
}

/// What the process records.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stamps {
    pub(super) device: String,
    pub(super) waits: Vec<Wait>,
    /// CPU time of the launching thread inside launches that waited.
    pub(super) waiting_cpu_ns: u64,
    pub(super) tracker_cpu_ns: u64,
}

/// Launches from the first line of input on, and prints what it recorded.
pub(crate) fn run(arguments: &ProgramArguments) -> anyhow::Result<()> {
    let session = Session::open(0)?;
    let (stream, buffer) = (session.stream()?, DeviceBuffer::with_initial_words(&session, 1)?);
    // The first launch starts the tracker and connects.
    stream.launch(&buffer, 1, arguments.iterations)?;
    stream.synchronize()?;
    writeln!(io::stdout(), "ready")?;
    io::stdin().lock().read_line(&mut String::new())?;
    let mut stamps = Stamps { device: session.device_name().to_owned(), ..Stamps::default() };
    let (tracker_before, end) =
        (cpu_ns_of_threads(TRACKER)?, Instant::now() + Duration::from_secs_f64(arguments.seconds));
    while Instant::now() < end {
        let (cpu, called) = (thread_cpu_ns()?, monotonic_ns());
        stream.launch(&buffer, 1, arguments.iterations)?;
        let returned = monotonic_ns();
        if returned - called > WAITED_NS {
            stamps.waits.push(Wait { called, returned });
            stamps.waiting_cpu_ns += thread_cpu_ns()? - cpu;
        }
        stream.synchronize()?;
    }
    stamps.tracker_cpu_ns = cpu_ns_of_threads(TRACKER)?.saturating_sub(tracker_before);
    Ok(write_line(&stamps, &mut io::stdout())?)
}

fn thread_cpu_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
}
