//! The command line of `sluice scheduler`, and what it means.

use std::net::SocketAddr;
use std::time::Duration;

use sluice_placement::Strategy;
use sluice_placement::annotations::{keys, parse_duration};

/// `sluice scheduler`: serve the extender beside a kube-scheduler.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Where the kube-scheduler beside us finds the extender. There is no authentication: keep it on this pod.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9402")]
    pub listen: SocketAddr,
    /// Where /metrics, /livez and /readyz are served.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9401")]
    pub metrics_listen: SocketAddr,
    /// The kube-scheduler's leader election lease, as NAMESPACE/NAME or NAME in our own namespace: we decide only while
    /// the kube-scheduler of our pod holds it. `none`: always, for a kube-scheduler without leader election.
    #[arg(long, value_name = "LEASE", default_value = "sluice-scheduler")]
    pub lease: Lease,
    /// Our pod's name: the holder of the lease is the kube-scheduler beside us if its identity is this name, `_`, anything. Default: the environment variable POD_NAME.
    #[arg(long, value_name = "NAME")]
    pub pod_name: Option<String>,
    /// Profile whose pods we place; `all` watches every pod of the cluster, for when a profile was renamed under running pods.
    #[arg(long, value_name = "NAME", default_value = keys::SCHEDULER_NAME)]
    pub scheduler_name: String,
    /// Fill GPUs one after the other, or keep pods apart.
    #[arg(long, value_enum, default_value_t = StrategyArgument::Binpack)]
    pub strategy: StrategyArgument,
    /// Nodes offered for a pod that has soft preferences among nodes, all held until it is bound. Other pods get the
    /// single best one, and the kube-scheduler skips its scoring.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub candidates: u16,
    /// Offer that many nodes for every pod.
    #[arg(long)]
    pub always_score: bool,
    /// How long an offer is held when no bind comes for it.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub reservation: Duration,
    /// How long a bind may take; keep the kube-scheduler's httpTimeout above it.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub bind_timeout: Duration,
    /// Events about assignments written per second on average; what exceeds it is left out and counted. 0 writes none.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub events_per_second: u32,
    /// GPUs with series of their own in /metrics; clusters with more have series by node.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub metrics_gpus: usize,
}

/// How pods are laid over GPUs.
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

/// Whose lease says that we decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lease {
    /// Nobody's: we always do.
    None,
    /// This one's.
    Named {
        /// `None`: our own namespace.
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
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_lease_is_named_with_or_without_its_namespace_or_not_at_all() {
        let named =
            |namespace: Option<&str>| Lease::Named { namespace: namespace.map(Into::into), name: "l".into() };
        assert_eq!("none".parse(), Ok(Lease::None));
        assert_eq!("l".parse(), Ok(named(None)));
        assert_eq!("n/l".parse(), Ok(named(Some("n"))));
        for wrong in ["", "/", "n/", "/l", "a/b/c"] {
            assert!(wrong.parse::<Lease>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_has_a_default_and_nonsense_is_refused() {
        let defaults = Command::try_parse_from(["scheduler"]).unwrap().arguments;
        assert_eq!(defaults.listen.to_string(), "127.0.0.1:9402");
        assert_eq!(defaults.reservation, Duration::from_secs(60));
        for wrong in
            ["--reservation=0s", "--reservation=soon", "--candidates=0", "--strategy=random", "--lease=a/b/c"]
        {
            assert!(Command::try_parse_from(["scheduler", wrong]).is_err(), "{wrong}");
        }
    }
}
