//! The command line of `sluice scheduler`.

use std::net::SocketAddr;
use std::time::Duration;

use sluice_placement::Strategy;
use sluice_placement::annotations::{keys, parse_duration};

/// `sluice scheduler`: serve the extender beside a kube-scheduler.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Where the kube-scheduler of this pod reaches the extender. There is no authentication: keep it on this pod's
    /// loopback address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9402")]
    pub listen: SocketAddr,
    /// Where /metrics, /livez and /readyz are served. `[::]` stands for all addresses, IPv4 ones included.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9401")]
    pub metrics_listen: SocketAddr,
    /// The kube-scheduler's leader election lease, as NAMESPACE/NAME, or NAME in the extender's own namespace. The
    /// extender decides only while the kube-scheduler of its pod holds this lease. `none`: always, for a
    /// kube-scheduler without leader election.
    #[arg(long, value_name = "LEASE", default_value = "sluice-scheduler")]
    pub lease: Lease,
    /// This pod's name. The lease is held by the kube-scheduler of this pod if the holder's identity is this name, `_`
    /// and any text. Default: the environment variable POD_NAME.
    #[arg(long, value_name = "NAME")]
    pub pod_name: Option<String>,
    /// Scheduler profile whose pods are placed; `all` watches every pod of the cluster, for a profile that was renamed
    /// while its pods run.
    #[arg(long, value_name = "NAME", default_value = keys::SCHEDULER_NAME)]
    pub scheduler_name: String,
    /// Fill GPUs one after the other, or spread pods over GPUs.
    #[arg(long, value_enum, default_value_t = StrategyArgument::Binpack)]
    pub strategy: StrategyArgument,
    /// Nodes offered for a pod that has soft preferences among nodes; all stay reserved until it is bound. Other pods
    /// get the single best node, and the kube-scheduler skips its scoring.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub candidates: u16,
    /// Offer that many nodes for every pod.
    #[arg(long)]
    pub always_score: bool,
    /// How long a reservation lasts if no bind follows.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub reservation: Duration,
    /// How long a bind may take; keep the kube-scheduler's httpTimeout above it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub bind_timeout: Duration,
    /// Events about assignments written per second on average. Further events are dropped and counted. 0 writes none.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub events_per_second: u32,
    /// Create a pod for each waiting pod for which no single GPU has room, so that the cluster's autoscaler adds a node. The pods are in the
    /// namespace of the extender's pod. No scheduler binds them.
    #[arg(long)]
    pub scale_up_pods: bool,
    /// Namespaces whose annotated pods the webhook gives a claim (DRA), comma-separated: their claim templates are created.
    #[arg(long, value_name = "NAMESPACES", default_value = "")]
    pub claims_in: String,
    /// GPUs with series of their own in /metrics; with more GPUs the series are per node.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub metrics_gpus: usize,
}

/// How pods are distributed over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StrategyArgument {
    /// Fill GPUs one after the other.
    Binpack,
    /// As few pods on a GPU as possible.
    Spread,
}

impl From<StrategyArgument> for Strategy {
    fn from(laying: StrategyArgument) -> Self {
        match laying {
            StrategyArgument::Binpack => Self::Binpack,
            StrategyArgument::Spread => Self::Spread,
        }
    }
}

/// The lease that decides whether this extender is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lease {
    /// No lease: always active.
    None,
    /// This lease.
    Named {
        /// `None`: the extender's own namespace.
        namespace: Option<String>,
        /// The lease's name.
        name: String,
    },
}

impl std::str::FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| !part.is_empty() && !part.contains('/');
        match text.split_once('/') {
            None if text == "none" => Ok(Self::None),
            None if is_name(text) => Ok(Self::Named { namespace: None, name: text.to_owned() }),
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self::Named { namespace: Some(namespace.to_owned()), name: name.to_owned() })
            }
            _ => Err("expected NAMESPACE/NAME, NAME or none".to_owned()),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration above zero, such as 60s or 1m30s");
    let nanoseconds = parse_duration(text).ok_or_else(wrong)?;
    if nanoseconds == 0 { Err(wrong()) } else { Ok(Duration::from_nanos(nanoseconds)) }
}

#[cfg(test)]
mod tests;
