//! Where `top` reads: a cluster, or pages by their addresses.

use crate::cluster::Cluster;
use crate::metrics_pages::MetricsPages;
use crate::top::Top;

/// Where `top` reads.
pub(crate) enum Source {
    /// A cluster.
    Cluster(Cluster),
    /// Pages of metrics by their addresses.
    Pages(MetricsPages),
}

impl Source {
    pub(crate) async fn top(&self) -> anyhow::Result<Top> {
        match self {
            Self::Cluster(cluster) => cluster.top().await,
            Self::Pages(pages) => pages.top().await,
        }
    }
}
