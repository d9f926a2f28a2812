//! `sluice-dev soak`: random driver calls of 64 threads in eight processes under the hook, while tenants, the pod-manager and the node
//! agent are killed and stopped at random. Statements that must hold at any time are checked while it runs, the others whenever the
//! tenants are quiet and at the end. The simulator's ledger is the witness. Beside it a second node has clients whose memory does not fit on
//! its GPU together.

mod agent;
mod api_server;
mod census;
mod checks;
mod clients;
mod disturbances;
mod end;
mod failure;
mod node;
mod overcommitted;
mod report;
mod schedule;
mod tenant;
mod tenant_node;
mod tenants;
mod witness;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use sluice_load::random_calls::{self, Config, Random};
use sluice_test_bed::Interrupts;

use disturbances::{Disturbances, Targets};
use node::SoakNode;
use overcommitted::Overcommitted;
use report::Findings;
use tenant_node::TenantNode;
use tenants::Tenants;

/// How long the tenants make calls between two checks.
const ROUND: Duration = Duration::from_secs(9);

/// Flags of the soak.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How long it runs; the rounds in progress and the last checks are added
    #[arg(long, value_name = "MINUTES", default_value_t = 2.0)]
    minutes: f64,
    /// The random numbers follow from it; by default a new one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// Write the figures and the broken statements to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run the pod-manager from a resource file, without the node agent
    #[arg(long)]
    without_agent: bool,
    /// Copy all logs to this folder if a statement is broken
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Make every round one of this kind
    #[arg(long, value_enum)]
    only: Option<Targets>,
    /// Run this program with the soak's folder as its argument if a process does not answer, before any process is ended
    #[arg(long, value_name = "PROGRAM")]
    on_failure: Option<PathBuf>,
}

/// Flags of a tenant's process.
#[derive(Debug, Args)]
pub(crate) struct TenantArguments {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    threads: u32,
    /// End after so many calls of each thread
    #[arg(long)]
    calls: Option<u64>,
    /// Join this cgroup first
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Start short children now and then
    #[arg(long)]
    children: bool,
    /// Use memory pools
    #[arg(long)]
    pools: bool,
    /// Keep everything in memory that may leave the GPU
    #[arg(long)]
    movable: bool,
}

/// Runs the soak; fails with status 1 if a statement is broken.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let seed = flags.seed.unwrap_or_else(new_seed);
    writeln!(io::stdout(), "seed {seed}")?;
    let mut random = Random::new(seed);
    let mut findings = Findings::new(seed);
    let mut node = SoakNode::start(!flags.without_agent, interrupts)?;
    let folder = node.folder();
    writeln!(io::stdout(), "{}", node.describe())?;
    let minutes = Duration::try_from_secs_f64(60.0 * flags.minutes).context("--minutes")?;
    let mut overcommitted = Overcommitted::start(&mut random, interrupts)?;
    let second = overcommitted.folder();
    writeln!(io::stdout(), "{}", overcommitted.describe())?;
    let outcome =
        soak(&mut node, &mut overcommitted, (minutes, flags), &mut random, &mut findings, interrupts);
    if let Err(why) = &outcome {
        // An interrupted soak proves nothing; another error is a finding with the logs' ends.
        interrupts.check()?;
        findings.broken("the soak reaches its end", &format!("{why:#}"));
    }
    findings.finish(&node);
    if let Some(logs) = flags.logs.as_ref().filter(|_| !findings.is_ok()) {
        node.copy_logs(logs)?;
        overcommitted.copy_logs(logs)?;
    }
    drop((node, overcommitted));
    for folder in [folder, second] {
        let is_left = folder.exists();
        findings.check("nothing is left of the soak's folders", !is_left, || folder.display().to_string());
    }
    writeln!(io::stdout(), "{findings}")?;
    flags.json.as_deref().map_or(Ok(()), |path| findings.save(path))?;
    Ok(if findings.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn soak(
    node: &mut SoakNode,
    overcommitted: &mut Overcommitted,
    (minutes, flags): (Duration, &Arguments),
    random: &mut Random,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    checks::remember_idle(node, findings)?;
    let mut tenants = Tenants::start(node, random, interrupts)?;
    let outcome = rounds(
        (node, &mut *overcommitted),
        &mut tenants,
        (minutes, flags.only),
        random,
        findings,
        interrupts,
    );
    if outcome.is_err() && interrupts.check().is_ok() {
        // The tenants are killed when this function returns.
        failure::record(node, flags.on_failure.as_deref())?;
        overcommitted.record_failure(flags.on_failure.as_deref())?;
    }
    outcome?;
    end::end(node, tenants, findings, interrupts)?;
    overcommitted.end(findings, interrupts)
}

/// The rounds, each of which ends with a quiet state.
fn rounds(
    (node, overcommitted): (&mut SoakNode, &mut Overcommitted),
    tenants: &mut Tenants,
    (minutes, only): (Duration, Option<Targets>),
    random: &mut Random,
    findings: &mut Findings,
    interrupts: &Interrupts,
) -> anyhow::Result<()> {
    let (begin, mut round) = (Instant::now(), 0);
    while begin.elapsed() < minutes || round < 3 {
        round += 1;
        // Daemons are only stopped in the second half, so that one process of each is observed for long. In each third round the
        // tenants alone are disturbed, so that limits hold which depend on the manager.
        let targets = only.unwrap_or(match round % 3 {
            0 => Targets::Tenants,
            _ if begin.elapsed() < minutes / 2 => Targets::All,
            _ => Targets::StopsOfDaemons,
        });
        findings.begin_round(round, targets);
        tenants.go()?;
        overcommitted.begin_round(round, targets)?;
        let witness = witness::Witness::begin(node, targets)?;
        let mut disturbances = Disturbances::new(targets, random.split(round));
        let until = Instant::now() + ROUND;
        while Instant::now() < until {
            disturbances.proceed(node, tenants, findings, interrupts)?;
            tenants.poll(node, findings)?;
            witness.look(node, findings)?;
            overcommitted.proceed(findings, interrupts)?;
            interrupts.pause()?;
        }
        disturbances.undo_all(node, tenants, interrupts)?;
        witness.end(node, findings)?;
        checks::quiet(node, tenants, findings, interrupts)?;
        overcommitted.end_round(findings, interrupts)?;
        findings.print_progress(begin.elapsed())?;
    }
    Ok(())
}

/// Runs a tenant's process.
pub(crate) fn run_tenant(flags: &TenantArguments) -> anyhow::Result<()> {
    if let Some(cgroup) = &flags.cgroup {
        // 0 stands for the writing process.
        fs::write(cgroup.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot join {}", cgroup.display()))?;
    }
    let child = if flags.children { child_command(flags.movable)? } else { Vec::new() };
    // A short child ends soon; 64 threads leave the cores of this machine some time.
    let pause = Duration::from_millis(if flags.calls.is_some() { 2 } else { 40 });
    let TenantArguments { seed, threads, calls, pools, movable, .. } = *flags;
    random_calls::run(&Config { seed, threads, calls, pools, movable, pause, child }).context("random calls")
}

/// This program as a short child of this process, which kills it at its own end.
fn child_command(movable: bool) -> anyhow::Result<Vec<OsString>> {
    let program = std::env::current_exe().context("cannot find this program's path")?;
    let parent = std::process::id().to_string();
    let arguments = ["--parent", &parent, "soak-tenant", "--threads", "2", "--calls", "12"];
    let arguments = arguments.into_iter().chain(movable.then_some("--movable"));
    Ok([program.into_os_string()].into_iter().chain(arguments.map(OsString::from)).collect())
}

/// A seed from the clock.
fn new_seed() -> u64 {
    Random::new(sluice_sys::clock::monotonic_ns()).below(1_000_000_000)
}
