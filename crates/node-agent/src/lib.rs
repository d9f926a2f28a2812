//! The node agent: GPUs, kubelet's device plugin, pods' limits, pod-managers, metrics.
//!
//! Each module answers one question and knows none of the others; `wiring` alone joins them.
#![forbid(unsafe_code)]

pub mod gpu;
pub mod library;
pub mod managers;
pub mod metrics;
pub mod node;
pub mod plugin;
pub mod pods;

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
