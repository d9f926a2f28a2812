//! Renews the certificate: at intervals it renews what is due, publishes the CA bundle, and serves the stored
//! certificate. Every replica does the same; the version of the Secret decides which write succeeds.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::rotation::{Material, Policy};
use super::tls;
use crate::webhook::status::Status;

/// Attempts to write a Secret that other replicas write too.
const ATTEMPTS: usize = 5;

/// The time in seconds since 1970.
pub(in crate::webhook) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

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

/// The Secret as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct Stored {
    /// Its content, if it can be read.
    pub(in crate::webhook) material: Option<Material>,
    /// For a write that fails if the Secret changed since; `None` if there is no Secret.
    pub(in crate::webhook) version: Option<String>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::webhook) enum Written {
    /// Our material is stored.
    Stored,
    /// Another replica wrote first: read again.
    Conflict,
}

/// A cluster's Secret and webhook configurations.
pub(in crate::webhook) trait Cluster {
    fn read(&self) -> impl Future<Output = anyhow::Result<Stored>> + Send;

    /// Writes the Secret if it still is at `version`.
    fn write(
        &self,
        material: &Material,
        version: Option<&str>,
    ) -> impl Future<Output = anyhow::Result<Written>> + Send;

    /// The CA bundle of each webhook, PEM; empty where there is none yet.
    fn read_bundles(&self) -> impl Future<Output = anyhow::Result<Vec<String>>> + Send;

    /// Makes every webhook trust this bundle.
    fn write_bundles(&self, bundle: &str) -> impl Future<Output = anyhow::Result<()>> + Send;
}
