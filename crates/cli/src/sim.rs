//! `sluice sim`: the simulated GPU's daemon, its ledger as JSON, and faults for tests. `sluice sim run`: policies side by side.

mod plot;
mod run;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use sluice_sim::identity::{PciAddress, parse_uuid};
use sluice_sim::rm::Support;
use sluice_sim::{client, client::Instance, daemon};

use crate::quantity::parse_bytes;

/// Flags of `sluice sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    daemon: Option<Daemon>,
}

#[derive(Debug, Args)]
struct Daemon {
    /// Unix socket to serve; programs find it through SLUICE_SIM_SOCKET. Given several times, each is a GPU of one node, all with one clock
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// Device memory, such as 16Gi; an H200's if absent
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Device memory that each context takes, such as 64Mi; about that of an H200 if absent
    #[arg(long, value_parser = parse_bytes)]
    context_memory: Option<u64>,
    /// Whether NVML reports the memory of each process
    #[arg(long, value_enum, default_value_t = Switch::On)]
    report_memory: Switch,
    /// Time by which NVML's report of the memory of processes lags behind, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    report_lag_ms: u64,
    /// Identity, such as GPU-01234567-89ab-cdef-0123-456789abcdef; follows from the socket's path if absent
    #[arg(long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Product name as the driver reports it
    #[arg(long)]
    model: Option<String>,
    /// Place on the PCI bus, such as 0000:18:00.0; follows from the identity if absent
    #[arg(long)]
    pci: Option<PciAddress>,
    /// NUMA node of the host to which the GPU belongs; none if absent
    #[arg(long)]
    numa: Option<u32>,
    /// Other end of an NVLink: the PCI address of a GPU or of a switch; may be given for each link
    #[arg(long, value_name = "PCI")]
    nvlink: Vec<PciAddress>,
    /// The GPU is in MIG mode: NVML lists it with its instances
    #[arg(long)]
    mig: bool,
    /// It is an instance of the GPU with this identity, which is in MIG mode
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    mig_parent: Option<[u8; 16]>,
    /// Slices of the GPU that the instance has, 1 to 7
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "mig_parent")]
    mig_slices: u32,
    /// How its driver answers controls of channel groups
    #[arg(long, value_enum, default_value_t = Controls::Full)]
    controls: Controls,
    /// Whether streams can wait for words in memory, and write them
    #[arg(long, value_enum, default_value_t = Switch::On)]
    mem_ops: Switch,
    /// Version that its driver reports; a known version if absent
    #[arg(long, value_name = "VERSION")]
    driver_version: Option<String>,
    /// Compute mode: 0 several processes, 2 no process, 3 one process
    #[arg(long, value_name = "MODE", default_value_t = 0)]
    compute_mode: i32,
    /// Its driver reports an MPS server
    #[arg(long)]
    mps: bool,
    /// What the GPU's time follows
    #[arg(long, value_enum, default_value_t = Clock::Real)]
    clock: Clock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// The machine's clock
    Real,
    /// A clock that stands still until a test advances it over the socket
    Stepped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Controls {
    /// It refuses them
    None,
    /// It reports success and does nothing
    StatusOnly,
    /// It does them
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulates scheduling policies side by side on a scenario, without a daemon
    Run(run::Arguments),
    #[command(flatten)]
    Query(Query),
}

#[derive(Debug, Subcommand)]
enum Query {
    /// What the GPU has counted since it started, as JSON
    Ledger {
        /// Unix socket of the daemon
        #[arg(long)]
        socket: PathBuf,
    },
    /// The processes that had the GPU in the last milliseconds, as JSON lines
    Timeline {
        /// Unix socket of the daemon
        #[arg(long)]
        socket: PathBuf,
        /// How far to look back
        #[arg(long, default_value_t = 1000)]
        last_ms: u64,
    },
    /// Identity and faults of the GPU, as JSON
    Info {
        /// Unix socket of the daemon
        socket: PathBuf,
    },
    /// Injects a fault as the driver reports it: 79 loses the GPU, 48 breaks it until a reset, 94 degrades it, 13 is a program's own fault
    Xid {
        /// Unix socket of the daemon
        socket: PathBuf,
        /// Number of the Xid
        code: u64,
    },
    /// Repairs all faults of the GPU
    Heal {
        /// Unix socket of the daemon
        socket: PathBuf,
    },
}

/// Serves until the process ends, or answers the query.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match (&arguments.command, &arguments.daemon) {
        (Some(Command::Run(arguments)), _) => Ok(write!(io::stdout(), "{}", run::run(arguments)?)?),
        (Some(Command::Query(query)), _) => {
            let (Query::Ledger { socket }
            | Query::Timeline { socket, .. }
            | Query::Info { socket }
            | Query::Xid { socket, .. }
            | Query::Heal { socket }) = query;
            let answer = answer(query, socket)
                .with_context(|| format!("cannot ask the simulated GPU at {}", socket.display()))?;
            Ok(write!(io::stdout(), "{answer}")?)
        }
        (None, Some(flags)) => serve(flags),
        (None, None) => anyhow::bail!("`sluice sim` needs --socket PATH"),
    }
}

/// Asks the simulated GPU. Returns the text to print.
fn answer(query: &Query, socket: &Path) -> anyhow::Result<String> {
    Ok(match query {
        Query::Ledger { .. } => serde_json::to_string_pretty(&client::ledger(socket)?)? + "\n",
        Query::Timeline { last_ms, .. } => {
            let now = client::ledger(socket)?.gpu.now_ns;
            let from = now.saturating_sub(last_ms.saturating_mul(1_000_000));
            let intervals = client::timeline(socket, from, now)?.into_iter();
            intervals
                .map(|interval| Ok(serde_json::to_string(&interval)? + "\n"))
                .collect::<anyhow::Result<_>>()?
        }
        Query::Info { .. } => {
            let info = client::gpu_info(socket)?;
            let mut text = serde_json::to_value(&info)?;
            text["uuid"] = info.uuid_text().into();
            text["pci"] = info.pci.to_string().into();
            text["links"] = info.links.iter().map(ToString::to_string).collect();
            format!("{text:#}\n")
        }
        Query::Xid { code, .. } => client::inject(socket, *code).map(|()| String::new())?,
        Query::Heal { .. } => client::heal(socket).map(|()| String::new())?,
    })
}

fn serve(flags: &Daemon) -> anyhow::Result<()> {
    if flags.socket.len() > 1 && (flags.uuid.is_some() || flags.pci.is_some()) {
        anyhow::bail!("--uuid and --pci are of one GPU, and {} sockets are given", flags.socket.len());
    }
    let configs = flags.socket.iter().map(|socket| config(flags, socket)).collect();
    let sockets: Vec<String> = flags.socket.iter().map(|socket| socket.display().to_string()).collect();
    daemon::run(configs).with_context(|| format!("the simulated GPU at {} ended", sockets.join(", ")))
}

/// The configuration of one GPU.
fn config(flags: &Daemon, socket: &Path) -> daemon::DaemonConfig {
    let mut config = daemon::DaemonConfig::at(socket);
    if let Some(uuid) = flags.uuid {
        config.set_uuid(uuid);
    }
    config.context_bytes = flags.context_memory.unwrap_or(config.context_bytes);
    config.report_lag_ns = flags.report_lag_ms.saturating_mul(1_000_000);
    let gpu = &mut config.gpu;
    gpu.memory_bytes = flags.memory.unwrap_or(gpu.memory_bytes);
    if let Some(model) = &flags.model {
        gpu.name.clone_from(model);
    }
    gpu.pci = flags.pci.unwrap_or(gpu.pci);
    gpu.numa = flags.numa;
    gpu.links.clone_from(&flags.nvlink);
    gpu.is_mig = flags.mig;
    let slices = flags.mig_slices;
    gpu.instance = flags.mig_parent.map(|parent| Instance { parent, slices, compute_slices: slices });
    if gpu.instance.is_some() {
        // As the driver names it, with its profile.
        gpu.name = format!("{} MIG {slices}g.{}gb", gpu.name, gpu.memory_bytes >> 30);
    }
    config.controls = match flags.controls {
        Controls::None => Support::None,
        Controls::StatusOnly => Support::StatusOnly,
        Controls::Full => Support::Full,
    };
    if let Some(version) = &flags.driver_version {
        gpu.driver_version.clone_from(version);
    }
    gpu.compute_mode = flags.compute_mode;
    gpu.is_mps = flags.mps;
    gpu.reports_memory = flags.report_memory == Switch::On;
    gpu.has_mem_ops = flags.mem_ops == Switch::On;
    config.clock = match flags.clock {
        Clock::Real => daemon::Clock::Real,
        Clock::Stepped => daemon::Clock::STEPPED,
    };
    config
}
