//! What the parts of the hook's launch path cost on this machine: in a loop of their own, and behind a launch of the driver. The driver's
//! launch replaces the contents of caches, and its writes to the GPU may not have left the processor: a locked instruction waits for them.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sluice_sys::page::{Access, SharedPage};
use sluice_sys::tsc::{self, Calibration};
use sluice_sys::{clock, membarrier};

use super::super::median;
use super::{Lane, Side, nanoseconds_per_tick, trimmed_mean};

/// Rounds of four blocks for each part: without it, with it, with it, without it.
const ROUNDS: usize = 60;
/// Repetitions of a part in a loop of its own, and the loops of which the fastest counts.
const LOOP: (u32, u32) = (10_000, 20);

/// What decides how long the hook's path takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LaunchPath {
    /// The time-stamp counter can be compared with deadlines; otherwise each launch reads the clock.
    tsc_trusted: bool,
    /// The kernel orders the launches of all threads for the drain; otherwise each launch takes two locked instructions.
    membarrier: bool,
    clock_source: String,
    parts: Vec<PartTime>,
}

/// Nanoseconds that a part takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PartTime {
    part: String,
    in_loop_ns: f64,
    behind_launch_ns: f64,
}

/// A counter on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl LaunchPath {
    /// Measures in the calling thread.
    pub(super) fn measure(lane: &Lane<'_>) -> anyhow::Result<Self> {
        let calibration = Calibration::measure();
        let per_tick = calibration.map_or(1.0, nanoseconds_per_tick);
        let (_writable, fd) = SharedPage::create("sluice-bench").context("cannot make a page")?;
        let page = SharedPage::map(fd.as_fd(), Access::ReadOnly).context("cannot map a page")?;
        let counters: [Counter; 2] = Default::default();
        let function: fn() = black_box(empty);
        let mut parts = Vec::new();
        let mut add = |part: &str, call: &dyn Fn()| -> anyhow::Result<()> {
            let times = [in_loop(call), behind_launch(lane, call)?].map(|ticks| ticks * per_tick);
            parts.push(PartTime { part: part.to_owned(), in_loop_ns: times[0], behind_launch_ns: times[1] });
            Ok(())
        };
        add("nothing", &|| ())?;
        add("counter", &|| _ = black_box(tsc::now()))?;
        add("clock", &|| _ = black_box(clock::monotonic_ns()))?;
        add("two plain additions", &|| {
            for Counter(count) in &counters {
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
            }
        })?;
        add("two locked additions", &|| {
            for Counter(count) in &counters {
                count.fetch_add(1, Ordering::SeqCst);
            }
        })?;
        add("word of a shared page", &|| _ = black_box(page.words()[16].load(Ordering::Relaxed)))?;
        add("call by pointer", &|| function())?;
        Ok(Self {
            tsc_trusted: calibration.is_some(),
            membarrier: membarrier::register(),
            clock_source: std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default().trim().to_owned(),
            parts,
        })
    }

    /// The lines of the report.
    pub(crate) fn lines(&self) -> Vec<String> {
        let facts = format!(
            "time-stamp counter trusted: {}, membarrier: {}, clock source: {}",
            self.tsc_trusted, self.membarrier, self.clock_source
        );
        let part = |part: &PartTime| {
            format!("{:22} {:8.1} {:8.1}", part.part, part.in_loop_ns, part.behind_launch_ns)
        };
        let parts = self.parts.iter().map(part);
        [facts, format!("{:22} {:>8} {:>8}", "part, ns", "in loop", "behind launch")]
            .into_iter()
            .chain(parts)
            .collect()
    }
}

/// The kernel's clock source: what a reading of the clock costs depends on it.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

#[inline(never)]
fn empty() {
    black_box(());
}

/// Ticks of one call, in the fastest loop.
fn in_loop(call: &dyn Fn()) -> f64 {
    let (repetitions, loops) = LOOP;
    let ticks = (0..loops).map(|_| {
        let begin = tsc::now();
        (0..repetitions).for_each(|_| call());
        tsc::now().wrapping_sub(begin)
    });
    ticks.min().unwrap_or(0) as f64 / f64::from(repetitions)
}

/// Ticks by which a launch and the part take longer than the launch: the median of neighbouring blocks.
fn behind_launch(lane: &Lane<'_>, call: &dyn Fn()) -> anyhow::Result<f64> {
    let mut differences = Vec::with_capacity(ROUNDS);
    let typical = |call: &dyn Fn()| anyhow::Ok(trimmed_mean(&lane.block(Side::Bare, call)?));
    for _ in 0..ROUNDS {
        let [a, b, c, d] = [typical(&|| ())?, typical(call)?, typical(call)?, typical(&|| ())?];
        differences.push(f64::midpoint(b - a, c - d));
    }
    Ok(median(differences))
}
