//! `sluice demo`: three tenants share a GPU as separate processes under the real hook, and every promise is checked against
//! what the GPU itself says.

mod cast;
mod device;
mod plan;
mod screen;
mod verdict;
mod witness;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use sluice_load::driver::Driver;
use sluice_load::samples::Quantiles;
use sluice_sys::clock::monotonic_ns;

use crate::metrics::Metrics;
use crate::signals::Interrupts;
use crate::stage::{Setting, Stage};
use cast::Cast;
use plan::{Class, Tenant};
use screen::{Picture, Screen, time};
use verdict::{Run, Verdict, judge};
use witness::{Sight, Witness};

/// How long the latency-critical tenant has the GPU to itself, to know its latency alone.
const ALONE: Duration = Duration::from_millis(1500);
/// The demo ends by itself within a minute, whatever happens.
const LONGEST: Duration = Duration::from_secs(57);
/// Time between two pictures.
const PICTURE_EVERY: Duration = Duration::from_millis(500);

/// Flags of `sluice demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How long the tenants share the GPU
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=40))]
    seconds: u32,
    /// Which GPU: a real one if there is a driver that finds one, or a simulated one
    #[arg(long, value_enum, default_value_t = Gpu::Auto)]
    gpu: Gpu,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Everybody takes turns by token alone: the GPU's own controls stay untouched
    #[arg(long)]
    by_token: bool,
}

impl Arguments {
    /// What the pod-manager controls.
    fn controls(&self, simulated: bool) -> &'static str {
        match (self.by_token, simulated) {
            (true, _) => "off",
            (false, true) => "simulated",
            (false, false) => "auto",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gpu {
    /// Real if there is one, else simulated
    Auto,
    /// Simulated
    Sim,
    /// Real
    Real,
}

/// Runs the demo; the exit code says whether every check held.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let interrupts = Interrupts::hold()?;
    let mut screen = Screen::new();
    let (verdict, alone, beside) = perform(arguments, &interrupts, &mut screen)?;
    screen.say(&summary(&verdict, alone, beside))?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&verdict)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn perform(
    arguments: &Arguments,
    interrupts: &Interrupts,
    screen: &mut Screen,
) -> anyhow::Result<(Verdict, Option<Quantiles>, Quantiles)> {
    let simulated = is_simulated(arguments.gpu)?;
    let tenants = plan::tenants();
    screen.say(&introduction(simulated, arguments.seconds, &tenants))?;
    let begun = Instant::now();
    let look = || {
        if begun.elapsed() > LONGEST {
            bail!("the demo takes too long and is given up");
        }
        interrupts.pause()
    };
    let setting = Setting {
        simulated,
        resource_file: plan::resource_file(&tenants),
        manager_flags: vec![format!("--controls={}", arguments.controls(simulated))],
    };
    let mut stage = Stage::build(setting, look)?;
    let mut witness = Witness::find(simulated.then(|| stage.simulator_socket()))?;
    let mut cast = Cast::empty();

    // One after the other, the latency-critical one first: a witness that sees only the whole GPU knows whose memory is whose.
    let mut order: Vec<&Tenant> = tenants.iter().collect();
    order.sort_by_key(|tenant| tenant.class != Class::LatencyCritical);
    for tenant in order {
        cast.enter(&stage, tenant)?;
        cast.wait_for_start(look)?;
        cast.players.last().map_or(Ok(()), |player| witness.arrived(player))?;
        let alone_until =
            Instant::now() + if tenant.class == Class::LatencyCritical { ALONE } else { Duration::ZERO };
        while Instant::now() < alone_until {
            cast.listen()?;
            look()?;
        }
    }
    cast.arrange(&tenants);
    for player in &mut cast.players {
        player.process.mark()?;
    }

    let (begin, from_ns) = (Instant::now(), monotonic_ns());
    let length = Duration::from_secs(arguments.seconds.into());
    let (mut pictured, mut scraped) = (begin, None);
    while begin.elapsed() < length {
        look()?;
        cast.listen()?;
        stage.check_running()?;
        if pictured.elapsed() >= PICTURE_EVERY {
            pictured = Instant::now();
            let sight = witness.look(&cast.players, from_ns, monotonic_ns())?;
            let metrics = Metrics::scrape(stage.metrics).ok().filter(|metrics| names_all(metrics, &tenants));
            let time = (begin.elapsed().as_secs_f64(), length.as_secs_f64());
            screen.show(&Picture {
                time,
                players: &cast.players,
                sight: &sight,
                metrics: metrics.as_ref(),
            })?;
            scraped = metrics.or(scraped);
        }
    }
    let to_ns = monotonic_ns();
    cast.leave(look)?;
    let sight = witness.look(&cast.players, from_ns, to_ns)?;
    let run = Run {
        gpu: witness.gpu(),
        seconds: (to_ns - from_ns) as f64 / 1e9,
        busy: sight.busy,
        memory_slack: witness.memory_slack(),
        metrics_scraped: scraped.is_some(),
    };
    Ok(conclude(run, &cast, &sight))
}

fn conclude(run: Run, cast: &Cast, sight: &Sight) -> (Verdict, Option<Quantiles>, Quantiles) {
    let outcomes: Vec<_> = cast
        .players
        .iter()
        .map(|player| (player.tenant.clone(), player.outcome(sight.of(player.process.pid()))))
        .collect();
    let critical = cast.players.iter().find(|player| player.tenant.class == Class::LatencyCritical);
    let alone = critical.and_then(cast::Player::latency_before_mark);
    let beside = critical.map(|player| player.lc.latency_us).unwrap_or_default();
    (judge(run, &outcomes), alone, beside)
}

/// Whether to simulate: `auto` does unless a driver finds a device.
fn is_simulated(gpu: Gpu) -> anyhow::Result<bool> {
    let count = || Driver::open().and_then(|driver| driver.device_count());
    match gpu {
        Gpu::Sim => Ok(true),
        Gpu::Auto => Ok(!matches!(count(), Ok(1..))),
        Gpu::Real => match count().context("there is no real GPU to use")? {
            1.. => Ok(false),
            _ => bail!("the driver finds no GPU"),
        },
    }
}

fn names_all(metrics: &Metrics, tenants: &[Tenant]) -> bool {
    tenants.iter().all(|tenant| {
        ["sluice_share", "sluice_memory_limit_bytes"]
            .iter()
            .all(|metric| metrics.get(metric, tenant.name).is_some())
    })
}

fn introduction(simulated: bool, seconds: u32, tenants: &[Tenant]) -> String {
    let gpu = if simulated { "a simulated H200 (no GPU is touched)" } else { "this machine's GPU" };
    let mut text = format!(
        "Three programs share {gpu} for {seconds} seconds, each in a process of its own under libsluice.so:\n"
    );
    for tenant in tenants {
        let promise = match tenant.class {
            Class::BestEffort => {
                format!("always has work; is promised {:.0} % of the GPU", tenant.quota * 100.0)
            }
            Class::LatencyCritical => {
                "has a small request every 10 ms and never waits for its turn".to_owned()
            }
        };
        text += &format!(
            "  {:6} {:16}  {promise}, {} of memory\n",
            tenant.name,
            tenant.class.name(),
            crate::quantity::bytes(tenant.memory_limit)
        );
    }
    text
}

fn summary(verdict: &Verdict, alone: Option<Quantiles>, beside: Quantiles) -> String {
    let mut text = String::from("\n");
    for check in &verdict.checks {
        text += &format!("  {}  {}\n", if check.ok { "ok    " } else { "FAILED" }, check.text);
    }
    if let Some(alone) = alone {
        text += &format!(
            "  note    lc's requests took {} (p50) and {} (p99) beside them, {} and {} alone\n",
            time(beside.p50),
            time(beside.p99),
            time(alone.p50),
            time(alone.p99)
        );
    }
    text += match (verdict.ok, verdict.is_simulated()) {
        (true, true) => {
            "\nEvery promise was kept. Shares, memory and kernel counts come from the simulated GPU's own ledger, not from tenants or manager."
        }
        (true, false) => {
            "\nEvery promise was kept. Memory is NVML's figure, and the kernels counted are proven by what they left in memory."
        }
        (false, _) => "\nNot every promise was kept: see FAILED above.",
    };
    text
}
