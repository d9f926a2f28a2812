//! The blocks of one kernel length: alone, time-sliced and with Sluice, alternately.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_load::command_driven::{Command, RunResult, ServeResult, unix_ns};

use super::arm_order::{Arm, ArmOrder};
use super::generator::Generator;
use super::level_processes::LevelProcesses;
use super::preemption_level::achieved;
use super::report::LeftOut;
use super::row::{ArmSamples, Measurements, Row};
use super::{Arguments, TimeLimit};

/// Requests at the begin of a block that are not counted.
const WARM_UP: u32 = 10;
/// Time of an arm beside its requests: answers, kernels in flight.
const ARM: Duration = Duration::from_millis(250);

/// Estimated time of [`measure`].
pub(super) fn estimate(flags: &Arguments, hints: usize) -> Duration {
    let beside = 1 + u32::try_from(hints).unwrap_or(2);
    let requests = lasting(flags, flags.requests.div_ceil(flags.blocks) + WARM_UP);
    // Best effort alone takes half of an arm; requests alone take one arm in two parts.
    flags.blocks * (requests * (1 + beside) + requests / 2 + ARM * (3 + beside))
}

fn lasting(flags: &Arguments, requests: u32) -> Duration {
    Duration::from_micros(flags.period_us.into()) * requests
}

/// Measures beside kernels of one length, with and without hints as requested.
pub(super) fn measure(
    flags: &Arguments,
    processes: &mut LevelProcesses,
    kernel_us: u32,
    hints: &[bool],
    limit: &TimeLimit<'_>,
) -> anyhow::Result<Vec<Result<Row, LeftOut>>> {
    let block_run = BlockRun { flags, limit, kernel_us };
    let requests = flags.requests.div_ceil(flags.blocks);
    let half = requests / 2;
    let sluice = hints.iter().map(|hint| (*hint, ArmSamples::default())).collect();
    let mut all = Measurements { sluice, ..Measurements::default() };
    let order = ArmOrder::of(flags.seed, (kernel_us, processes.level), hints);
    for block in 0..flags.blocks {
        for arm in order.block(block) {
            let LevelProcesses { plain_lc, plain_be, .. } = &mut *processes;
            match arm {
                Arm::Alone(0) => all.alone[0].served(block_run.serve(plain_lc, half.max(1), 0)?),
                Arm::Alone(_) => {
                    all.alone[1].served(block_run.serve(plain_lc, (requests - half).max(1), 0)?);
                }
                Arm::BestEffort => all.be_alone.ran(&block_run.run_alone(plain_be, half)?),
                Arm::Stock => block_run.beside(plain_lc, plain_be, requests, 0, &mut all.stock, || Ok(()))?,
                Arm::Sluice(hint) => block_run.with_sluice(processes, requests, hint, &mut all)?,
            }
        }
        processes.bed.check_running()?;
    }
    let rows = all.sluice.iter().map(|(hint, samples)| {
        let wanted = flags.requests as usize;
        let answered = samples.latencies.len().min(all.stock.latencies.len());
        let why = if answered < wanted {
            Some(format!("only {answered} of {wanted} requests were answered in time"))
        } else if all.be_alone.rate() == 0.0 {
            Some("no best-effort kernel ended in a block alone: longer blocks are needed".to_owned())
        } else {
            samples.misses(*hint)
        };
        let level = processes.level;
        match why {
            Some(why) => Err(LeftOut { be_kernel_us: kernel_us, level, hint: *hint, why }),
            None => Ok(all.row(kernel_us, level, *hint, samples, order.names(flags.blocks))),
        }
    });
    Ok(rows.collect())
}

/// Everything that is the same for all arms of a block.
struct BlockRun<'a> {
    flags: &'a Arguments,
    limit: &'a TimeLimit<'a>,
    kernel_us: u32,
}

impl BlockRun<'_> {
    fn serve(&self, lc: &mut Generator, requests: u32, lead_us: u32) -> anyhow::Result<ServeResult> {
        let period_us = self.flags.period_us.into();
        let command = Command::Serve { requests, warm_up: WARM_UP, period_us, lead_us };
        lc.serve(&command, lasting(self.flags, requests + WARM_UP), self.limit)
    }

    /// Kernels without other processes, for the time that `requests` take.
    fn run_alone(&self, be: &mut Generator, requests: u32) -> anyhow::Result<RunResult> {
        be.run(self.kernel_us, self.limit)?;
        let from_ns = unix_ns();
        let to_ns = from_ns + u64::try_from(lasting(self.flags, requests).as_nanos()).unwrap_or(u64::MAX);
        while unix_ns() < to_ns {
            self.limit.pause()?;
        }
        be.halt(from_ns, to_ns, self.limit)
    }

    /// Requests beside kernels with Sluice, at the row's level.
    fn with_sluice(
        &self,
        processes: &mut LevelProcesses,
        requests: u32,
        hint: bool,
        all: &mut Measurements,
    ) -> anyhow::Result<()> {
        let Some((_, samples)) = all.sluice.iter_mut().find(|(its, _)| *its == hint) else { return Ok(()) };
        let lead_us = if hint { self.flags.lead_us } else { 0 };
        let (level, metrics) = (processes.level, processes.bed.metrics_address());
        let mut by_level = BTreeMap::new();
        self.beside(&mut processes.lc, &mut processes.be, requests, lead_us, samples, || {
            by_level = achieved(metrics)?;
            Ok(level.check(&by_level)?)
        })?;
        samples.achieved = by_level;
        Ok(())
    }

    /// Requests beside kernels. `inspect` is called while the kernels still run.
    fn beside(
        &self,
        lc: &mut Generator,
        be: &mut Generator,
        requests: u32,
        lead_us: u32,
        samples: &mut ArmSamples,
        inspect: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        be.run(self.kernel_us, self.limit)?;
        let served = self.serve(lc, requests, lead_us)?;
        inspect()?;
        samples.ran(&be.halt(served.from_ns, served.to_ns, self.limit)?);
        samples.served(served);
        Ok(())
    }
}
