//! The extender of a stock kube-scheduler: filter, prioritize, bind.

/// `sluice scheduler`: serve the extender beside a kube-scheduler.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Serves until a signal.
///
/// # Errors
/// What keeps it from starting.
pub async fn run(_arguments: Arguments) -> anyhow::Result<()> {
    anyhow::bail!("the extender is not built yet")
}
