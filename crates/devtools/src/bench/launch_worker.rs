//! The process in which `bench hook` measures. It calls both the driver's launch function and the hook's, with the same stream, kernel and
//! memory, so that two blocks differ only in the function that is called.

mod parts;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, anyhow};
use clap::Args;
use nix::unistd;
use serde::{Deserialize, Serialize};
use sluice_load::driver::Driver;
use sluice_load::memory::DeviceBuffer;
use sluice_load::record::write_line;
use sluice_load::samples::Samples;
use sluice_load::session::{Session, Stream};
use sluice_sys::tsc::{self, Calibration};

use super::{Percentiles, median};
pub(crate) use parts::LaunchPath;

/// Launches of a block, and between two marker calls. A stream accepts four times as many before a launch has to wait.
pub(crate) const BLOCK: usize = 256;
/// Launches before a block that are not measured: they acquire a grant if the last one has expired.
const WARM_UP: usize = 16;
/// Blocks of [`BLOCK`] launches between which system calls are counted.
pub(crate) const COUNTED_BLOCKS: usize = 40;

/// Flags of the worker.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The hook
    #[arg(long)]
    hook: PathBuf,
    /// Threads that launch at the same time
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Rounds of four blocks: bare, hooked, hooked, bare
    #[arg(long, default_value_t = 400)]
    rounds: usize,
    /// Launch in blocks between two marker calls for the process that traces this one, instead of measuring
    #[arg(long)]
    counted: Option<Side>,
    /// Measure the parts of the hook's path instead of the whole
    #[arg(long)]
    parts: bool,
}

/// Which launch function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// The driver's.
    Bare,
    /// The hook's.
    Hooked,
}

/// What the worker measured, nanoseconds per launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LaunchTimes {
    /// Through the driver's own function.
    pub(crate) bare_ns: Percentiles,
    /// Through the hook, under grants that expire and are renewed.
    pub(crate) hooked_ns: Percentiles,
    /// p50: median of the differences between neighbouring blocks' typical launches. p99: difference of the two p99 above.
    pub(crate) added_ns: Percentiles,
    /// The same as `added_ns.p50` between bare blocks: the noise of the measurement.
    pub(crate) noise_ns: f64,
    /// Number of measured launches of each kind.
    pub(crate) samples: usize,
}

/// Measures and prints the times and the name of the device as one line of JSON, or makes blocks for the tracer to count.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let bare = Session::open(0).context("the driver itself")?;
    let hook = Driver::open_library(&arguments.hook);
    let hooked = hook.and_then(|hook| Session::with_driver(hook, 0)).context("the hook")?;
    if arguments.parts {
        return Ok(write_line(&LaunchPath::measure(&Lane::new(&bare, &hooked)?)?, &mut io::stdout())?);
    }
    match arguments.counted {
        Some(side) => counted(&Lane::new(&bare, &hooked)?, side),
        None => {
            let times = measure(&bare, &hooked, arguments.threads, arguments.rounds)?;
            Ok(write_line(&(times, bare.device_name()), &mut io::stdout())?)
        }
    }
}

/// Ticks per launch of one thread, by side, and the typical launch of each round's four blocks.
#[derive(Default)]
struct Series {
    bare: Vec<u64>,
    hooked: Vec<u64>,
    rounds: Vec<[f64; 4]>,
}

fn measure(bare: &Session, hooked: &Session, threads: usize, rounds: usize) -> anyhow::Result<LaunchTimes> {
    let barrier = Barrier::new(threads);
    let all = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| one_thread(bare, hooked, &barrier, rounds))).collect();
        let panicked = |_| Err(anyhow!("a thread that launches panicked"));
        let series = workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked));
        series.collect::<anyhow::Result<Vec<Series>>>()
    })?;
    let calibration = Calibration::measure();
    let ns = |ticks: f64| calibration.map_or(ticks, |clock| ticks * nanoseconds_per_tick(clock));
    let overhead = stamp_overhead();
    let percentiles = |side: fn(&Series) -> &Vec<u64>| {
        let samples: Samples =
            all.iter().flat_map(side).map(|ticks| ticks.saturating_sub(overhead)).collect();
        let ticks = Percentiles::of(&samples, 1.0);
        (Percentiles { p50: ns(ticks.p50), p99: ns(ticks.p99) }, samples.len())
    };
    let ((bare_ns, samples), (hooked_ns, _)) =
        (percentiles(|series| &series.bare), percentiles(|series| &series.hooked));
    let rounds = || all.iter().flat_map(|series| &series.rounds);
    let added = median(rounds().map(|[a, b, c, d]| f64::midpoint(b - a, c - d)).collect());
    let noise = median(rounds().map(|[a, _, _, d]| d - a).collect());
    Ok(LaunchTimes {
        bare_ns,
        hooked_ns,
        added_ns: Percentiles { p50: ns(added), p99: hooked_ns.p99 - bare_ns.p99 },
        noise_ns: ns(noise),
        samples,
    })
}

fn one_thread(bare: &Session, hooked: &Session, barrier: &Barrier, rounds: usize) -> anyhow::Result<Series> {
    // No thread returns before the last round, even after an error: the others would wait at the barrier for ever.
    let lane = Lane::new(bare, hooked);
    let mut series = Ok(Series::default());
    for _ in 0..rounds {
        let mut typical = [0.0; 4];
        for (place, side) in typical.iter_mut().zip([Side::Bare, Side::Hooked, Side::Hooked, Side::Bare]) {
            // All threads measure the same side at the same time.
            barrier.wait();
            let (Ok(lane), Ok(measured)) = (&lane, &mut series) else { continue };
            match lane.block(side, || ()) {
                Ok(ticks) => {
                    *place = trimmed_mean(&ticks);
                    match side {
                        Side::Hooked => measured.hooked.extend(ticks),
                        Side::Bare => measured.bare.extend(ticks),
                    }
                }
                Err(why) => series = Err(why),
            }
        }
        if let Ok(measured) = &mut series {
            measured.rounds.push(typical);
        }
    }
    lane?;
    series
}

/// A stream and a word of memory, made under the hook, for launches through either function.
struct Lane<'s> {
    bare: &'s Session,
    hooked: &'s Session,
    stream: Stream<'s>,
    buffer: DeviceBuffer<'s>,
}

impl<'s> Lane<'s> {
    fn new(bare: &'s Session, hooked: &'s Session) -> anyhow::Result<Self> {
        hooked.use_on_this_thread()?;
        Ok(Self {
            bare,
            hooked,
            stream: hooked.stream()?,
            buffer: DeviceBuffer::with_initial_words(hooked, 1)?,
        })
    }

    /// Launches a block of empty kernels, calls `after` behind each launch, and waits for the kernels. Returns the ticks that each launch took
    /// with what follows it.
    fn block(&self, side: Side, after: impl Fn()) -> anyhow::Result<Vec<u64>> {
        self.hooked.use_on_this_thread()?;
        self.launch(side, WARM_UP)?;
        let mut ticks = Vec::with_capacity(BLOCK);
        let mut last = tsc::now();
        for _ in 0..BLOCK {
            self.launch(side, 1)?;
            after();
            let now = tsc::now();
            ticks.push(now.wrapping_sub(last));
            last = now;
        }
        self.stream.synchronize()?;
        Ok(ticks)
    }

    fn launch(&self, side: Side, times: usize) -> anyhow::Result<()> {
        let session = match side {
            Side::Bare => self.bare,
            Side::Hooked => self.hooked,
        };
        for _ in 0..times {
            self.stream.launch_through(session.driver(), &self.buffer, 1, 0)?;
        }
        Ok(())
    }
}

/// Launches [`COUNTED_BLOCKS`] blocks, each between two calls of `getppid`, which no other code here makes. Waits for a line of
/// input before the first block, so that the tracer is attached.
fn counted(lane: &Lane<'_>, side: Side) -> anyhow::Result<()> {
    writeln!(io::stdout(), "ready")?;
    io::stdin().lock().read_line(&mut String::new())?;
    for _ in 0..COUNTED_BLOCKS {
        lane.launch(side, WARM_UP)?;
        let _ = unistd::getppid();
        lane.launch(side, BLOCK)?;
        let _ = unistd::getppid();
        lane.stream.synchronize()?;
    }
    Ok(())
}

/// The mean of the faster nine tenths: finer than the counter's steps, and independent of interrupts.
fn trimmed_mean(ticks: &[u64]) -> f64 {
    let mut sorted = ticks.to_vec();
    sorted.sort_unstable();
    let kept = sorted.len() - sorted.len() / 10;
    sorted.iter().take(kept).sum::<u64>() as f64 / kept.max(1) as f64
}

/// Ticks between two consecutive readings of the counter.
fn stamp_overhead() -> u64 {
    let overhead = |_| {
        let first = tsc::now();
        tsc::now().wrapping_sub(first)
    };
    (0..1000).map(overhead).min().unwrap_or(0)
}

fn nanoseconds_per_tick(clock: Calibration) -> f64 {
    let base = clock.ns_at(1 << 40);
    clock.ns_at((1 << 40) + 1_000_000_000).saturating_sub(base) as f64 / 1e9
}

#[cfg(test)]
mod tests;
