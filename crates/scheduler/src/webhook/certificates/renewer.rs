//! Keeps the certificate: looks every few seconds, renews what is due, publishes what must be trusted, serves what is
//! stored. Every replica does the same; the Secret's version decides who was first.

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

/// Attempts at a Secret that other replicas write too.
const ATTEMPTS: usize = 5;

/// Seconds since 1970, from wherever.
pub(in crate::webhook) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Keeps one certificate.
pub(in crate::webhook) struct CertificateRenewer<C> {
    pub(in crate::webhook) cluster: C,
    pub(in crate::webhook) policy: Policy,
    pub(in crate::webhook) clock: Clock,
    pub(in crate::webhook) server: RustlsConfig,
    pub(in crate::webhook) status: Arc<Status>,
}

impl<C: Cluster> CertificateRenewer<C> {
    /// Looks every `interval` until `stop`. Ready after the first look that succeeds; trouble after that is logged and
    /// counted, and what was served goes on being served.
    pub(in crate::webhook) async fn run(self, interval: Duration, stop: CancellationToken) {
        let mut served = None;
        while !stop.is_cancelled() {
            match self.renew_if_due(served.as_ref()).await {
                Ok(material) => {
                    self.status.certificate(material.serving().ends);
                    served = Some(material);
                }
                Err(error) => {
                    self.status.certificate_failed();
                    warn!("certificate: {error:#}; looking again in {interval:?}");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One look: renew, publish, serve. The order matters: what is served has been published before.
    ///
    /// # Errors
    /// What the cluster or the certificates refuse.
    pub(in crate::webhook) async fn renew_if_due(
        &self,
        served: Option<&Material>,
    ) -> anyhow::Result<Material> {
        for _ in 0..ATTEMPTS {
            let stored = self.cluster.read().await.context("cannot read the Secret")?;
            let bundles = self.cluster.bundles().await.context("cannot read the webhook configurations")?;
            let now = (self.clock)();
            let due = self
                .policy
                .advance(stored.material.as_ref(), &bundles, now)
                .context("cannot make a certificate")?;
            if stored.material.as_ref() != Some(&due) {
                let version = stored.version.as_deref();
                if self.cluster.write(&due, version).await.context("cannot write the Secret")?
                    == Written::Conflict
                {
                    continue;
                }
                info!("certificate: renewed; the one served ends at {}", tls::show(due.serving().ends));
            }
            let bundle = due.bundle();
            if bundles.is_empty() || bundles.iter().any(|held| *held != bundle) {
                self.cluster.trust(&bundle).await.context("cannot write the webhook configurations")?;
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
