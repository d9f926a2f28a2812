//! Starts the extender and ends it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::arguments::{Arguments, Lease};
use super::events::{self, Writer};
use super::extender::{Extender, Policy};
use super::leadership::{LeadershipState, SettleTimes};
use super::metrics::Metrics;
use super::{budget_watch, http, lease, node_watch, pod_watch};
use crate::translated::{ClaimNamespaces, keep_templates};
use sluice_daemon::listener::listen;

/// Scheduler name that stands for every pod of the cluster.
const EVERY_POD: &str = "all";

/// How long a filter call waits for this replica to become active; shorter than the kube-scheduler's timeout (5 s by
/// default).
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(3);

/// A new node takes longer to start, and most refusals end sooner.
const SCALE_UP_AFTER: Duration = Duration::from_secs(10);

/// How long API servers may take to carry out a bind that its sender does not wait for any more.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Serves until `stop`.
///
/// # Errors
/// What prevents the start.
pub async fn run(arguments: Arguments, stop: CancellationToken) -> anyhow::Result<()> {
    let election = LeaderElection::of(&arguments)?;
    let mut config = kube::Config::infer().await.context("cannot find the API server")?;
    // A bind that the client library repeats would fail with "already bound" after its own success. The watches have a
    // backoff of their own.
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let client = kube::Client::try_from(config).context("cannot create a client of the API server")?;
    let (extender, writer) = create_extender(&arguments, client.clone())?;
    let verbs = TcpListener::from_std(listen(arguments.listen)?)?;
    let page = TcpListener::from_std(listen(arguments.metrics_listen)?)?;
    tracing::info!(verbs = %arguments.listen, metrics = %arguments.metrics_listen, ?election, "extender started");

    tokio::spawn(writer.write(client.clone(), arguments.scheduler_name.clone()));
    let mut background = spawn_background(&extender, election, namespace.clone());
    let claims_in = ClaimNamespaces::from(arguments.claims_in.as_str());
    if !claims_in.is_empty() {
        let leader = extender.clone();
        let is_leading = move || leader.leadership.state() == LeadershipState::Active;
        background.push(tokio::spawn(keep_templates(client, claims_in, is_leading)));
    }
    if arguments.scale_up_pods {
        let pod_name = own_pod_name(&arguments).context("--scale-up-pods needs --pod-name or POD_NAME")?;
        let extender = extender.clone();
        background
            .push(tokio::spawn(async move { extender.keep_scale_up_pods(&namespace, &pod_name).await }));
    }
    let serve_page = axum::serve(page, http::page(extender.clone(), arguments.metrics_gpus));
    let serve_page = serve_page.with_graceful_shutdown(stop.clone().cancelled_owned());
    let serve_verbs = axum::serve(verbs, http::verbs(extender.clone()));
    let serve_verbs = serve_verbs.with_graceful_shutdown(stop.clone().cancelled_owned());
    // A connection that a kube-scheduler keeps open must not block the end.
    tokio::select! {
        outcome = async { tokio::try_join!(serve_verbs.into_future(), serve_page.into_future()) } => drop(outcome?),
        () = end(&extender, &stop, background, arguments.bind_timeout) => {}
    }
    Ok(())
}

/// After `stop`: no new bind begins, and binds that are being sent are awaited.
async fn end(
    extender: &Extender,
    stop: &CancellationToken,
    background: Vec<tokio::task::JoinHandle<()>>,
    timeout: Duration,
) {
    stop.cancelled().await;
    for task in background {
        task.abort();
    }
    extender.leadership.set_leading(false);
    let mut sending = extender.sending();
    let quiet = sending.wait_for(|sending| *sending == 0);
    if tokio::time::timeout(timeout, quiet).await.is_err() {
        tracing::warn!("ended before the API server answered all binds");
    }
}

/// What makes this replica the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LeaderElection {
    Always,
    Lease { namespace: Option<String>, name: String, pod_name: String },
}

impl LeaderElection {
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let Lease::Named { namespace, name } = arguments.lease.clone() else { return Ok(Self::Always) };
        let pod_name = own_pod_name(arguments).context(
            "which kube-scheduler is ours? Give --pod-name or POD_NAME, or --lease none if it holds no lease",
        )?;
        Ok(Self::Lease { namespace, name, pod_name })
    }
}

fn own_pod_name(arguments: &Arguments) -> Option<String> {
    let pod_name = arguments.pod_name.clone().or_else(|| std::env::var("POD_NAME").ok());
    pod_name.filter(|name| !name.is_empty())
}

fn create_extender(arguments: &Arguments, client: kube::Client) -> anyhow::Result<(Arc<Extender>, Writer)> {
    let metrics = Metrics::new().context("cannot register metrics")?;
    let (events, writer) = events::pair(arguments.events_per_second, metrics.events_dropped.clone());
    let policy = Policy {
        strategy: arguments.strategy.into(),
        candidates: usize::from(arguments.candidates),
        always_score: arguments.always_score,
        reservation: arguments.reservation,
        bind_timeout: arguments.bind_timeout,
        activation_timeout: ACTIVATION_TIMEOUT,
        scale_up_after: SCALE_UP_AFTER,
        settle: SettleTimes { own: SETTLE_TIME, takeover: arguments.bind_timeout + SETTLE_TIME },
        scheduler_name: Some(arguments.scheduler_name.clone()).filter(|name| name != EVERY_POD),
    };
    Ok((Arc::new(Extender::new(policy, client, metrics, events)), writer))
}

fn spawn_background(
    extender: &Arc<Extender>,
    election: LeaderElection,
    own_namespace: String,
) -> Vec<tokio::task::JoinHandle<()>> {
    let [for_nodes, for_pods, for_budgets, expiry, leader] = std::array::from_fn(|_| extender.clone());
    if election == LeaderElection::Always {
        extender.leadership.set_leading(true);
    }
    vec![
        tokio::spawn(async move { node_watch::follow(&for_nodes).await }),
        tokio::spawn(async move { pod_watch::follow(&for_pods).await }),
        tokio::spawn(async move { budget_watch::follow(&for_budgets).await }),
        tokio::spawn(async move { expiry.keep_expiring().await }),
        tokio::spawn(async move {
            if let LeaderElection::Lease { namespace, name, pod_name } = election {
                lease::follow(&leader, &namespace.unwrap_or(own_namespace), &name, &pod_name).await;
            }
        }),
    ]
}
