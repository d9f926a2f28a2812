//! The admission webhook: translates annotations into what kubelet, scheduler and container runtime need.
//!
//! `plan` determines what a pod needs (`choice`: which container gets the GPU), `admission` decides on requests, `serve` is the HTTP server,
//! `certificates` renews its certificate. `claims` checks claims of DRA. It fails closed. The webhook configurations ensure that only pods with
//! Sluice's keys depend on it.

mod admission;
mod amounts;
mod arguments;
mod certificates;
mod choice;
mod claims;
mod compatibility;
mod containers;
mod ephemeral_containers;
mod node_selection;
mod output_annotations;
mod patch;
mod plan;
mod platform;
mod pod_request;
mod review;
mod serve;
mod sidecars;
mod status;
#[cfg(test)]
mod tests;
mod translation;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use arguments::Arguments;

use self::certificates::files::Files;
use self::certificates::kubernetes::Kubernetes;
use self::certificates::renewer::{CertificateRenewer, Clock};
use self::certificates::tls;
use self::status::Status;
use sluice_daemon::listener::listen;

/// How long requests under way may take after the end was requested.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until `shutdown`, and for some time afterwards, until the cluster sends no more requests.
///
/// # Errors
/// What prevents the start.
pub async fn run(arguments: Arguments, shutdown: CancellationToken) -> anyhow::Result<()> {
    let status = Arc::new(Status::new().context("cannot create metrics")?);
    let server = RustlsConfig::from_config(tls::without_certificate()?);
    let stop = CancellationToken::new();
    let (webhook, probes) = (listen(arguments.listen)?, listen(arguments.metrics)?);
    let renewer =
        start_certificate_task(&arguments, server.clone(), Arc::clone(&status), stop.clone()).await?;

    let admission = serve::Admission { settings: arguments.settings(), status: Arc::clone(&status) };
    let handle = Handle::new();
    let service = serve::router(Arc::new(admission)).into_make_service();
    let webhook = axum_server::from_tcp_rustls(webhook, server)?.handle(handle.clone()).serve(service);
    let probes = axum_server::from_tcp(probes)?
        .handle(handle.clone())
        .serve(status::router(Arc::clone(&status)).into_make_service());
    info!("webhook on {}, probes and metrics on {}", arguments.listen, arguments.metrics);

    let end = async {
        shutdown.cancelled().await;
        status.begin_shutdown();
        // Endpoints take a moment to follow. Until then requests still arrive, and are answered.
        tokio::time::sleep(Duration::from_secs(arguments.shutdown_delay_seconds)).await;
        stop.cancel();
        handle.graceful_shutdown(Some(GRACE));
    };
    let (webhook, probes, ()) = tokio::join!(webhook, probes, end);
    webhook.context("the webhook's listener failed")?;
    probes.context("the listener for probes failed")?;
    renewer.await.context("the task that renews the certificate failed")
}

async fn start_certificate_task(
    arguments: &Arguments,
    server: RustlsConfig,
    status: Arc<Status>,
    stop: CancellationToken,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let interval = Duration::from_secs(arguments.certificate_check_seconds.max(1));
    if let Some(folder) = arguments.cert_dir.clone() {
        return Ok(tokio::spawn(Files { folder, server, status }.run(interval, stop)));
    }
    let client = kube::Client::try_default().await.context("cannot reach the API server")?;
    let cluster = Kubernetes {
        client,
        namespace: arguments.namespace(),
        secret: arguments.secret.clone(),
        mutating: arguments.mutating_configuration.clone(),
        validating: arguments.validating_configuration.clone(),
    };
    let clock: Clock = Arc::new(|| jiff::Timestamp::now().as_second());
    let renewer = CertificateRenewer { cluster, policy: arguments.policy(), clock, server, status };
    Ok(tokio::spawn(renewer.run(interval, stop)))
}
