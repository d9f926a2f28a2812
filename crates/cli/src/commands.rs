//! Subcommands that put one library of ours on the command line.

pub(crate) mod check;
pub(crate) mod load;
pub(crate) mod node_agent;
pub(crate) mod pod_manager;
pub(crate) mod scheduler;
pub(crate) mod sim;
pub(crate) mod webhook;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Runs a daemon to its end, with logs on standard error as `RUST_LOG` asks.
fn daemon(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people at a terminal, not for `kubectl logs`.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start tokio")?;
    runtime.block_on(serve)?;
    Ok(ExitCode::SUCCESS)
}
