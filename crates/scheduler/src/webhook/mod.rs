//! The admission webhook: from annotations to what kubelet, scheduler and container runtime need.

/// `sluice webhook`: serve the admission webhook.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Serves until a signal.
///
/// # Errors
/// What keeps it from starting.
pub async fn run(_arguments: Arguments) -> anyhow::Result<()> {
    anyhow::bail!("the webhook is not built yet")
}
