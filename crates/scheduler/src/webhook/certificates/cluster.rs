//! The cluster as the certificate renewer needs it; tests have their own implementation.

use super::rotation::Material;

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
    /// Reads the Secret.
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
