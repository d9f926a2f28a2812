//! A certificate in files that another program renews: cert-manager's Secret, mounted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::tls;
use crate::webhook::status::Status;

/// A folder with `tls.crt` and `tls.key`.
pub(in crate::webhook) struct Files {
    pub(in crate::webhook) folder: PathBuf,
    pub(in crate::webhook) server: RustlsConfig,
    pub(in crate::webhook) status: Arc<Status>,
}

/// Certificate and key that were last served.
pub(in crate::webhook) type Pair = (Vec<u8>, Vec<u8>);

impl Files {
    /// Reads the files every `interval` until `stop`, and serves them when they have changed. Kubelet replaces both at
    /// once through a link. A pair that does not match is a transient state, and the old pair stays in use.
    pub(in crate::webhook) async fn run(self, interval: Duration, stop: CancellationToken) {
        let mut served = None;
        while !stop.is_cancelled() {
            match self.reload_if_changed(served.as_ref()).await {
                Ok(pair) => served = Some(pair),
                Err(error) => {
                    self.status.record_certificate_failure();
                    warn!("certificate: {error:#}; retrying in {interval:?}");
                }
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(interval)).await;
        }
    }

    /// Reads the files once, and serves them if they have changed.
    pub(in crate::webhook) async fn reload_if_changed(&self, served: Option<&Pair>) -> anyhow::Result<Pair> {
        let read = |name: &'static str| {
            let path = self.folder.join(name);
            async move { tokio::fs::read(&path).await.with_context(|| path.display().to_string()) }
        };
        let pair = (read("tls.crt").await?, read("tls.key").await?);
        if served != Some(&pair) {
            self.server.reload_from_config(tls::config(&pair.0, &pair.1)?);
            let ends = tls::end_of(&pair.0)?;
            self.status.record_certificate(ends);
            info!("certificate: read from {}; it ends at {}", self.folder.display(), tls::format_time(ends));
        }
        Ok(pair)
    }
}
