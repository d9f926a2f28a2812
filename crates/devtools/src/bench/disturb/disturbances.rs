//! Makes the disturbance of a scenario, and records what can only be observed meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use nix::sys::signal::{Signal, kill};
use serde::Serialize;
use sluice_sim::fault::ControlFault;
use sluice_sys::clock::monotonic_ns;
use sluice_test_bed::timeline::longest_gap;

use super::bed::DisturbBed;
use super::messages::{Answer, Command};
use super::scenario::{Client, Disturbance, Load, Scheduling};

/// Time from the stop of the manager to the calls that are timed.
const INTO_STOP: Duration = Duration::from_millis(300);
/// How long the level of processes is awaited, beyond the bar of 10 s.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(12);
/// Time between two readings of the level.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// What was observed during the disturbance.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Observed {
    /// Longest time for which each client's process did not run while the manager was stopped.
    pub(super) stood_ms: Vec<f64>,
    /// Time of an allocation while the manager was stopped.
    pub(super) allocation_ms: Option<f64>,
    /// Time of a process from its start to its first allocation: before, and while the manager was stopped.
    pub(super) start_ms: Option<(f64, f64)>,
    /// Median latency of requests before the limit was set.
    pub(super) latency_ms: Option<f64>,
    /// Whether a process lost its level while the driver's controls failed.
    pub(super) was_demoted: Option<bool>,
    /// Time from the driver's recovery until all processes had their level; absent if it took too long.
    pub(super) regained_s: Option<f64>,
}

/// Makes the disturbance. Returns when it is over.
pub(super) fn disturb(bed: &mut DisturbBed<'_>) -> anyhow::Result<Observed> {
    let mut seen = Observed::default();
    let clients = bed.scenario.clients.clone();
    match bed.scenario.disturbance {
        Disturbance::Nothing => {}
        Disturbance::ManagerStopped(time) => {
            bed.signal_manager(Signal::SIGSTOP)?;
            bed.waits.rest(time)?;
            bed.signal_manager(Signal::SIGCONT)?;
        }
        Disturbance::AllocationsWhileManagerStopped(time) => seen = allocate_while_stopped(bed, time)?,
        Disturbance::LongKernel(time) => {
            bed.send(0, Command::Long(u64::try_from(time.as_millis())?))?;
            bed.waits.rest(time)?;
            // Controls end its quantum in time. A grant does not: the client repays what the kernel took beyond it before it runs again, and
            // with about equal requests that takes as long as the kernel.
            if bed.scenario.scheduling != Scheduling::Controls {
                bed.waits.rest(time)?;
            }
        }
        Disturbance::ProcessStopped(time) => {
            bed.signal(0, Signal::SIGSTOP)?;
            bed.waits.rest(time)?;
            bed.signal(0, Signal::SIGCONT)?;
        }
        Disturbance::CriticalFor(time) => {
            let mut changed = clients.clone();
            changed[0].is_critical = true;
            bed.write_clients(&changed, "the first one is latency-critical")?;
            bed.waits.rest(time)?;
            bed.write_clients(&clients, "the first one is best effort again")?;
        }
        Disturbance::Restarted(after) => bed.restart(0, after)?,
        Disturbance::Reloaded => bed.write_clients(&clients, "without a change")?,
        Disturbance::OthersStopped => {
            for client in 0..clients.len() - 1 {
                bed.signal(client, Signal::SIGSTOP)?;
            }
        }
        Disturbance::StoppedInRequest => {
            bed.send(0, Command::Stop)?;
            bed.waits.rest(Duration::from_millis(100))?;
        }
        Disturbance::ControlsFail(fault, time) => fail_controls(bed, fault, time, &mut seen)?,
        Disturbance::Limited(before, limit) => {
            median_latency(bed)?;
            bed.waits.rest(before)?;
            seen.latency_ms = Some(median_latency(bed)?);
            let limited: Vec<Client> = [&[clients[0].limited(limit)], &clients[1..]].concat();
            bed.write_clients(&limited, "the first one has a limit")?;
        }
    }
    Ok(seen)
}

/// Median time of the first client's requests since the last call.
pub(super) fn median_latency(bed: &mut DisturbBed<'_>) -> anyhow::Result<f64> {
    match bed.ask(0, Command::Latencies)? {
        Answer::Latencies(ms) => Ok(super::super::median(ms)),
        other => bail!("{other:?} is no list of latencies"),
    }
}

/// Stops the manager for `time`. Meanwhile a running process allocates, and a new process makes its first allocation.
fn allocate_while_stopped(bed: &mut DisturbBed<'_>, time: Duration) -> anyhow::Result<Observed> {
    let starting = bed.scenario.clients.last().copied().filter(|client| client.load == Load::Idle);
    let Some(starting) = starting else { bail!("no client is there to start a process of") };
    let start_ms = |bed: &DisturbBed<'_>| -> anyhow::Result<f64> {
        let begun = Instant::now();
        bed.start_process(&starting)?;
        Ok(ms(begun.elapsed()))
    };
    let usual = start_ms(bed)?;
    bed.signal_manager(Signal::SIGSTOP)?;
    let (stopped, until) = (monotonic_ns(), Instant::now() + time);
    bed.waits.rest(INTO_STOP)?;
    bed.send(0, Command::Allocate)?;
    let manager = bed.manager()?;
    let meanwhile = thread::scope(|scope| {
        // The calls may not return before the manager continues.
        let continued = scope.spawn(move || {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            kill(manager, Signal::SIGCONT)
        });
        let started = start_ms(bed);
        continued.join().map_err(|_| anyhow!("the thread that continues the manager panicked"))??;
        started
    })?;
    let Answer::Allocated(allocation) = bed.answer(0)? else { bail!("no time of an allocation") };
    let end = stopped + u64::try_from(time.as_nanos())?;
    let timeline = bed.bed.gpu().timeline(stopped, end)?;
    let busy =
        (0..bed.scenario.clients.len()).filter(|client| bed.scenario.clients[*client].load == Load::Busy);
    let stood = busy.map(|client| longest_gap(&timeline, &[bed.pid(client)], stopped, end) as f64 / 1e6);
    Ok(Observed {
        stood_ms: stood.collect(),
        allocation_ms: Some(allocation),
        start_ms: Some((usual, meanwhile)),
        ..Observed::default()
    })
}

/// Lets the driver's controls fail for `time`, and waits until all processes have their level again.
fn fail_controls(
    bed: &DisturbBed<'_>,
    fault: ControlFault,
    time: Duration,
    seen: &mut Observed,
) -> anyhow::Result<()> {
    let gpu = bed.bed.gpu();
    gpu.set_control_fault(Some(fault))?;
    let until = Instant::now() + time;
    let mut was_demoted = false;
    while Instant::now() < until {
        was_demoted |= !bed.is_hardware_scheduled();
        bed.waits.rest(POLL_EVERY)?;
    }
    gpu.set_control_fault(None)?;
    let recovered = Instant::now();
    let is_back = || {
        let is_back = bed.is_hardware_scheduled();
        was_demoted |= !is_back;
        Ok(is_back.then_some(()))
    };
    let regained = bed.waits.until("the level", LEVEL_TIMEOUT, is_back);
    bed.waits.check()?;
    seen.was_demoted = Some(was_demoted);
    seen.regained_s = regained.ok().map(|()| recovered.elapsed().as_secs_f64());
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
