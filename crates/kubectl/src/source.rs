//! Where `top` reads: a cluster, or pages by their addresses.

use crate::cluster::Cluster;
use crate::metrics_pages::MetricsPages;
use crate::top::Top;

/// Where `top` reads.
pub(crate) enum Source {
    /// A cluster.
    Cluster {
        cluster: Cluster,
        /// Namespace of the node agents.
        sluice_namespace: String,
    },
    /// Pages of metrics by their addresses.
    Pages(MetricsPages),
}

impl Source {
    pub(crate) async fn top(&self) -> anyhow::Result<Top> {
        match self {
            Self::Cluster { cluster, sluice_namespace } => cluster.top(sluice_namespace).await,
            Self::Pages(pages) => pages.top().await,
        }
    }
}
