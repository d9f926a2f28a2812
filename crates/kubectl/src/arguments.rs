//! The command line: `kubectl sluice COMMAND`, and the same commands of `sluice`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_placement::annotations::keys;
use sluice_units::parse_duration;

/// Namespace that the documents install Sluice in.
pub(crate) const SLUICE_NAMESPACE: &str = "sluice-system";

/// See how pods share the cluster's GPUs
#[derive(Debug, Parser)]
#[command(name = "kubectl-sluice", bin_name = "kubectl sluice", version)]
pub struct Plugin {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of `kubectl sluice`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show each GPU with its pods: share asked and got, memory, waiting time, enforcement level
    Top(TopArguments),
    /// Explain why a pod waits for a GPU, where it would fit, and which pods are in its way
    Explain(ExplainArguments),
    /// List the nodes with GPUs: what is promised, what is free, which GPUs are unhealthy
    Nodes(NodesArguments),
}

/// Flags of `top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    /// Read a pod-manager's or node agent's http://ADDRESS/metrics instead of a cluster; may be repeated
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["context", "kubeconfig"])]
    pub(crate) metrics: Vec<String>,
    /// Namespace of Sluice; pods of other namespaces are not read as node agents
    #[arg(long, value_name = "NAME", default_value = SLUICE_NAMESPACE)]
    pub(crate) sluice_namespace: String,
    /// Print once and end, as with `-o json` and where the output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two readings; at least ten times the duration of a reading
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Name of the pod
    pub(crate) pod: String,
    /// Namespace of the pod [default: the namespace of the kubeconfig's context]
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Flags of `nodes`.
#[derive(Debug, Args)]
pub struct NodesArguments {
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// The cluster, as kubectl's flags name it.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The extender's flag of the same name: only pods with this scheduler are read; `all`: every pod
    #[arg(long, value_name = "NAME", default_value = keys::SCHEDULER_NAME)]
    pub(crate) scheduler_name: String,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Format of the output
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object; docs/operators/kubectl.md has its fields
    Json,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map(Duration::from_nanos);
    let shortest = Duration::from_millis(100);
    duration.filter(|duration| *duration >= shortest).ok_or_else(|| "at least 100ms, such as 2s".to_owned())
}

#[cfg(test)]
mod tests;
