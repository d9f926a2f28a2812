//! One length of kernels: the blocks in which alone, time-sliced and with Sluice take turns.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_load::commanded::{Command, Ran, Served};
use sluice_load::samples::Samples;

use super::Arguments;
use super::actor::Actor;
use super::clock::Clock;
use super::facts;
use super::level::achieved;
use super::report::{Outcome, Quantiles, Requests, Row};
use super::scene::Scene;

/// Requests at the begin of a block that do not count.
const WARM_UP: u32 = 10;
/// What an arm of a block takes beside its requests: answers, kernels in flight.
const ARM: Duration = Duration::from_millis(250);

/// What an arm has gathered.
#[derive(Default)]
struct Tally {
    latencies: Vec<u64>,
    kernels: u64,
    span_ns: u64,
    hints: BTreeMap<String, u64>,
    holds: u64,
}

impl Tally {
    fn served(&mut self, served: Served) {
        self.latencies.extend(served.latencies_ns);
        self.holds += served.holds;
        for (code, times) in served.hints {
            *self.hints.entry(code).or_default() += times;
        }
    }

    fn ran(&mut self, ran: &Ran) {
        self.kernels += ran.kernels;
        self.span_ns += ran.span_ns;
    }

    /// Kernels per second.
    fn rate(&self) -> f64 {
        if self.span_ns == 0 { 0.0 } else { self.kernels as f64 * 1e9 / self.span_ns as f64 }
    }

    fn quantiles(&self) -> Quantiles {
        Quantiles::of(&self.latencies.iter().copied().collect::<Samples>())
    }
}

/// About how long [`measure`] takes.
pub(super) fn estimate(flags: &Arguments, hints: usize) -> Duration {
    let arms = u32::try_from(hints).unwrap_or(2);
    let requests = lasting(flags, flags.requests.div_ceil(flags.blocks) + WARM_UP);
    flags.blocks * (requests * (2 + arms) + requests / 2 + ARM * (4 + arms))
}

fn lasting(flags: &Arguments, requests: u32) -> Duration {
    Duration::from_micros(flags.period_us.into()) * requests
}

/// Measures beside kernels of one length, with and without hints as asked for.
pub(super) fn measure(
    flags: &Arguments,
    scene: &mut Scene,
    kernel_us: u32,
    hints: &[bool],
    clock: &Clock<'_>,
) -> anyhow::Result<Vec<Outcome>> {
    let requests = flags.requests.div_ceil(flags.blocks);
    let half = requests / 2;
    let (mut alone, mut be_alone, mut stock) =
        ([Tally::default(), Tally::default()], Tally::default(), Tally::default());
    let mut sluice: Vec<(bool, Tally)> = hints.iter().map(|hint| (*hint, Tally::default())).collect();
    let mut levels = BTreeMap::new();
    for _ in 0..flags.blocks {
        alone[0].served(serve(flags, &mut scene.plain_lc, half.max(1), 0, clock)?);
        be_alone.ran(&run_alone(flags, &mut scene.plain_be, kernel_us, half, clock)?);
        beside(
            flags,
            (&mut scene.plain_lc, &mut scene.plain_be),
            kernel_us,
            (requests, 0),
            &mut stock,
            clock,
            || Ok(()),
        )?;
        for (hint, tally) in &mut sluice {
            let lead = if *hint { flags.lead_us } else { 0 };
            let (level, metrics) = (scene.level, scene.stage.metrics);
            beside(flags, (&mut scene.lc, &mut scene.be), kernel_us, (requests, lead), tally, clock, || {
                levels = achieved(metrics)?;
                Ok(level.check(&levels)?)
            })?;
        }
        alone[1].served(serve(flags, &mut scene.plain_lc, (requests - half).max(1), 0, clock)?);
        scene.stage.check_running()?;
    }
    let pooled: Samples = alone.iter().flat_map(|half| half.latencies.iter().copied()).collect();
    let (first, second) = (alone[0].quantiles(), alone[1].quantiles());
    let lc_alone_us = Quantiles::of(&pooled);
    let rows = sluice.into_iter().map(|(hint, tally)| {
        let lc_sluice_us = tally.quantiles();
        let answered = tally.latencies.len().min(stock.latencies.len());
        if answered < flags.requests as usize {
            return Err((
                hint,
                format!("only {answered} of {} requests were answered in time to go on", flags.requests),
            ));
        }
        Ok(Row {
            be_kernel_us: kernel_us,
            level: scene.level,
            hint,
            lc_alone_us,
            lc_stock_us: stock.quantiles(),
            lc_sluice_us,
            be_kept: tally.rate() / be_alone.rate(),
            added_p99_us: lc_sluice_us.p99 - lc_alone_us.p99,
            aa_noise: (second.p99 / first.p99 - 1.0).abs(),
            lc_alone_aa_us: [first, second],
            requests: Requests {
                alone: pooled.len(),
                stock: stock.latencies.len(),
                sluice: tally.latencies.len(),
            },
            be_kept_stock: stock.rate() / be_alone.rate(),
            be_alone_per_s: be_alone.rate(),
            be_kernels_counted: tally.kernels,
            achieved: levels.clone(),
            hint_results: tally.hints,
            holds: tally.holds,
            commit: facts::commit(),
            date: facts::date(),
        })
    });
    Ok(rows.collect())
}

fn serve(
    flags: &Arguments,
    lc: &mut Actor,
    requests: u32,
    lead_us: u32,
    clock: &Clock<'_>,
) -> anyhow::Result<Served> {
    let command = Command::Serve { requests, warm_up: WARM_UP, period_us: flags.period_us.into(), lead_us };
    lc.serve(&command, lasting(flags, requests + WARM_UP), clock)
}

/// Kernels with nobody beside, for as long as so many requests would take.
fn run_alone(
    flags: &Arguments,
    be: &mut Actor,
    kernel_us: u32,
    requests: u32,
    clock: &Clock<'_>,
) -> anyhow::Result<Ran> {
    be.run(kernel_us, clock)?;
    let from_ns = facts::unix_ns();
    let to_ns = from_ns + u64::try_from(lasting(flags, requests).as_nanos()).unwrap_or(u64::MAX);
    while facts::unix_ns() < to_ns {
        clock.pause()?;
    }
    be.halt(from_ns, to_ns, clock)
}

/// Requests beside kernels. `look` is called while both run.
fn beside(
    flags: &Arguments,
    (lc, be): (&mut Actor, &mut Actor),
    kernel_us: u32,
    (requests, lead_us): (u32, u32),
    tally: &mut Tally,
    clock: &Clock<'_>,
    mut look: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    be.run(kernel_us, clock)?;
    let served = serve(flags, lc, requests, lead_us, clock)?;
    look()?;
    tally.ran(&be.halt(served.from_ns, served.to_ns, clock)?);
    tally.served(served);
    Ok(())
}
