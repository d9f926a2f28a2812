//! What the renewer of certificates needs of a cluster; the tests have one of their own.

use super::rotation::Material;

/// The Secret as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::webhook) struct Stored {
    /// What is in it, if it can be read.
    pub(in crate::webhook) material: Option<Material>,
    /// To write only what nobody has changed since; `None` where there is no Secret.
    pub(in crate::webhook) version: Option<String>,
}

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::webhook) enum Written {
    /// Ours is in.
    Stored,
    /// Another replica was first: read again.
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
    fn bundles(&self) -> impl Future<Output = anyhow::Result<Vec<String>>> + Send;

    /// Makes every webhook trust this bundle.
    fn trust(&self, bundle: &str) -> impl Future<Output = anyhow::Result<()>> + Send;
}
