//! Renews the certificate: at intervals it renews what is due, publishes the CA bundle, and serves the stored
//! certificate. Every replica does the same; the version of the Secret decides which write succeeds.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::cluster::{Cluster, Written};
use super::rotation::{Material, Policy};
use super::tls;
use crate::webhook::status::Status;

/// Attempts to write a Secret that other replicas write too.
const ATTEMPTS: usize = 5;

/// The time in seconds since 1970.
pub(in crate::webhook) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Renews one certificate.
pub(in crate::webhook) struct CertificateRenewer<C> {
    pub(in crate::webhook) cluster: C,
    pub(in crate::webhook) policy: Policy,
    pub(in crate::webhook) clock: Clock,
    pub(in crate::webhook) server: RustlsConfig,
    pub(in crate::webhook) status: Arc<Status>,
}

impl<C: Cluster> CertificateRenewer<C> {
    /// Checks every `interval` until `stop`. The webhook is ready after the first success. Later errors are logged and
    /// counted, and the certificate in use stays in use.
    pub(in crate::webhook) async fn run(self, interval: Duration, stop: CancellationToken) {
        let mut served = None;
        while !stop.is_cancelled() {
            match self.renew_if_due(served.as_ref()).await {
                Ok(material) => {
                    self.status.record_certificate(material.serving().ends);
                    served = Some(material);
                }
                Err(error) => {
                    self.status.record_certificate_failure();
                    warn!("certificate: {error:#}; retrying in {interval:?}");
                }
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(interval)).await;
        }
    }

    /// Checks once: renew, publish, serve, in this order. So a certificate is served only after its authority was
    /// published.
    ///
    /// # Errors
    /// The cluster or the certificate library failed.
    pub(in crate::webhook) async fn renew_if_due(
        &self,
        served: Option<&Material>,
    ) -> anyhow::Result<Material> {
        for _ in 0..ATTEMPTS {
            let stored = self.cluster.read().await.context("cannot read the Secret")?;
            let bundles =
                self.cluster.read_bundles().await.context("cannot read the webhook configurations")?;
            let now = (self.clock)();
            let due = self
                .policy
                .advance(stored.material.as_ref(), &bundles, now)
                .context("cannot create a certificate")?;
            if stored.material.as_ref() != Some(&due) {
                let version = stored.version.as_deref();
                if self.cluster.write(&due, version).await.context("cannot write the Secret")?
                    == Written::Conflict
                {
                    continue;
                }
                info!(
                    "certificate: renewed; the one served ends at {}",
                    tls::format_time(due.serving().ends)
                );
            }
            let bundle = due.bundle();
            if bundles.is_empty() || bundles.iter().any(|current| *current != bundle) {
                self.cluster
                    .write_bundles(&bundle)
                    .await
                    .context("cannot write the webhook configurations")?;
            }
            if served.is_none_or(|served| served.serving() != due.serving()) {
                let serving = due.serving();
                let config = tls::config(serving.certificate.as_bytes(), serving.key.as_bytes())?;
                self.server.reload_from_config(config);
            }
            return Ok(due);
        }
        anyhow::bail!("the Secret changed {ATTEMPTS} times while it was being renewed")
    }
}
