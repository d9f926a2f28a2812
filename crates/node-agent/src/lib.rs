//! The node agent: GPUs, kubelet's device plugin, pods' limits, pod-managers, metrics.
#![forbid(unsafe_code)]

/// `sluice node-agent`: serve one node.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Serves until a signal.
///
/// # Errors
/// What keeps it from starting.
pub async fn run(_arguments: Arguments) -> anyhow::Result<()> {
    anyhow::bail!("the node agent is not built yet")
}
