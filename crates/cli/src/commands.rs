//! Subcommands that make one library of this workspace available on the command line.

pub(crate) mod check;
pub(crate) mod load;
pub(crate) mod pod_manager;
pub(crate) mod sim;

#[cfg(feature = "cluster")]
use std::process::ExitCode;

/// Runs a daemon to its end, with logs on standard error, filtered by `RUST_LOG`.
#[cfg(feature = "cluster")]
pub(crate) fn daemon(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    use anyhow::Context;
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;

    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are useful at a terminal only, not in `kubectl logs`.
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
