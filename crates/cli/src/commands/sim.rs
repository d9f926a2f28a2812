//! `sluice sim`: the simulated GPU's daemon, and its ledger for people and scripts.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use sluice_sim::{client, daemon};

use crate::quantity::parse_bytes;

/// Flags of `sluice sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Option<Question>,
    #[command(flatten)]
    daemon: Option<Daemon>,
}

#[derive(Debug, Args)]
struct Daemon {
    /// Unix socket to serve; programs find it through SLUICE_SIM_SOCKET
    #[arg(long)]
    socket: PathBuf,
    /// Device memory, such as 16Gi; an H200's if absent
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// What the GPU has counted since it started, as JSON
    Ledger {
        /// Unix socket of the daemon
        #[arg(long)]
        socket: PathBuf,
    },
    /// Who had the GPU in the last milliseconds, as JSON lines
    Timeline {
        /// Unix socket of the daemon
        #[arg(long)]
        socket: PathBuf,
        /// How far to look back
        #[arg(long, default_value_t = 1000)]
        last_ms: u64,
    },
}

/// Serves until the process ends, or answers the question.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match (&arguments.question, &arguments.daemon) {
        (Some(Question::Ledger { socket }), _) => {
            let ledger = client::ledger(socket).with_context(|| no_answer(socket))?;
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&ledger)?)?;
        }
        (Some(Question::Timeline { socket, last_ms }), _) => {
            let now = client::ledger(socket).with_context(|| no_answer(socket))?.gpu.now_ns;
            let from = now.saturating_sub(last_ms.saturating_mul(1_000_000));
            for interval in client::timeline(socket, from, now)? {
                writeln!(io::stdout(), "{}", serde_json::to_string(&interval)?)?;
            }
        }
        (None, Some(flags)) => serve(flags)?,
        (None, None) => anyhow::bail!("`sluice sim` needs --socket PATH"),
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(flags: &Daemon) -> anyhow::Result<()> {
    let mut config = daemon::DaemonConfig::at(&flags.socket);
    if let Some(bytes) = flags.memory {
        config.gpu.memory_bytes = bytes;
    }
    daemon::run(config).with_context(|| format!("the simulated GPU at {} ended", flags.socket.display()))
}

fn no_answer(socket: &std::path::Path) -> String {
    format!("no simulated GPU answers at {}", socket.display())
}
