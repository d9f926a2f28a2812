//! One length of kernels: the blocks in which alone, time-sliced and with Sluice take turns.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_load::commanded::{Command, Ran, Served, unix_ns};

use super::Arguments;
use super::actor::Actor;
use super::clock::Clock;
use super::level::achieved;
use super::order::{Arm, Order};
use super::row::{Outcome, Row};
use super::scene::Scene;
use super::tally::{Gathered, Tally};

/// Requests at the begin of a block that do not count.
const WARM_UP: u32 = 10;
/// What an arm of a block takes beside its requests: answers, kernels in flight.
const ARM: Duration = Duration::from_millis(250);

/// About how long [`measure`] takes.
pub(super) fn estimate(flags: &Arguments, scene: &Scene, hints: usize) -> Duration {
    let beside = 1 + u32::from(scene.shared.is_some()) + u32::try_from(hints).unwrap_or(2);
    let requests = lasting(flags, flags.requests.div_ceil(flags.blocks) + WARM_UP);
    // Best effort alone takes half of an arm, requests alone one in two parts.
    flags.blocks * (requests * (1 + beside) + requests / 2 + ARM * (3 + beside))
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
    let play = Play { flags, clock, kernel_us };
    let requests = flags.requests.div_ceil(flags.blocks);
    let half = requests / 2;
    let sluice = hints.iter().map(|hint| (*hint, Tally::default())).collect();
    let mut all = Gathered { sluice, ..Gathered::default() };
    let order = Order::of(flags.seed, (kernel_us, scene.level), hints, scene.shared.is_some());
    for block in 0..flags.blocks {
        for arm in order.block(block) {
            match arm {
                Arm::Alone(0) => all.alone[0].served(play.serve(&mut scene.plain_lc, half.max(1), 0)?),
                Arm::Alone(_) => {
                    all.alone[1].served(play.serve(&mut scene.plain_lc, (requests - half).max(1), 0)?);
                }
                Arm::BestEffort => all.be_alone.ran(&play.run_alone(&mut scene.plain_be, half)?),
                Arm::Stock => {
                    let Scene { plain_lc, plain_be, .. } = scene;
                    play.beside(plain_lc, plain_be, requests, 0, &mut all.stock, || Ok(()))?;
                }
                Arm::Mps => {
                    if let Some((lc, be)) = &mut scene.shared {
                        play.beside(lc, be, requests, 0, all.shared.get_or_insert_default(), || Ok(()))?;
                    }
                }
                Arm::Sluice(hint) => play.with_sluice(scene, requests, hint, &mut all)?,
            }
        }
        scene.stage.check_running()?;
    }
    let common = Row { order: order.names(flags.blocks), ..all.row(kernel_us, scene.level) };
    let rows = all.sluice.iter().map(|(hint, tally)| {
        let wanted = flags.requests as usize;
        let answered = tally.latencies.len().min(all.stock.latencies.len());
        if answered < wanted {
            return Err((
                *hint,
                format!("only {answered} of {wanted} requests were answered in time to go on"),
            ));
        }
        if all.be_alone.rate() == 0.0 {
            return Err((
                *hint,
                "best effort's rate alone was not seen: longer blocks are needed".to_owned(),
            ));
        }
        if let Some(why) = tally.misses(*hint) {
            return Err((*hint, why));
        }
        Ok(common.clone().with(*hint, tally, &all.be_alone))
    });
    Ok(rows.collect())
}

/// What is the same for all arms of a block.
struct Play<'a> {
    flags: &'a Arguments,
    clock: &'a Clock<'a>,
    kernel_us: u32,
}

impl Play<'_> {
    fn serve(&self, lc: &mut Actor, requests: u32, lead_us: u32) -> anyhow::Result<Served> {
        let period_us = self.flags.period_us.into();
        let command = Command::Serve { requests, warm_up: WARM_UP, period_us, lead_us };
        lc.serve(&command, lasting(self.flags, requests + WARM_UP), self.clock)
    }

    /// Kernels with nobody beside, for as long as so many requests would take.
    fn run_alone(&self, be: &mut Actor, requests: u32) -> anyhow::Result<Ran> {
        be.run(self.kernel_us, self.clock)?;
        let from_ns = unix_ns();
        let to_ns = from_ns + u64::try_from(lasting(self.flags, requests).as_nanos()).unwrap_or(u64::MAX);
        while unix_ns() < to_ns {
            self.clock.pause()?;
        }
        be.halt(from_ns, to_ns, self.clock)
    }

    /// Requests beside kernels with Sluice, at the level that the row is of.
    fn with_sluice(
        &self,
        scene: &mut Scene,
        requests: u32,
        hint: bool,
        all: &mut Gathered,
    ) -> anyhow::Result<()> {
        let Some((_, tally)) = all.sluice.iter_mut().find(|(its, _)| *its == hint) else { return Ok(()) };
        let lead_us = if hint { self.flags.lead_us } else { 0 };
        let (level, metrics) = (scene.level, scene.stage.metrics);
        let mut said = BTreeMap::new();
        self.beside(&mut scene.lc, &mut scene.be, requests, lead_us, tally, || {
            said = achieved(metrics)?;
            Ok(level.check(&said)?)
        })?;
        tally.achieved = said;
        Ok(())
    }

    /// Requests beside kernels. `look` is called while the kernels still run.
    fn beside(
        &self,
        lc: &mut Actor,
        be: &mut Actor,
        requests: u32,
        lead_us: u32,
        tally: &mut Tally,
        look: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        be.run(self.kernel_us, self.clock)?;
        let served = self.serve(lc, requests, lead_us)?;
        look()?;
        tally.ran(&be.halt(served.from_ns, served.to_ns, self.clock)?);
        tally.served(served);
        Ok(())
    }
}
