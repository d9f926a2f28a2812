//! Writes to the node object, at a limited rate.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::Value;
use sluice_rate_limiter::Backoff;
use tokio::time::Instant;
use tracing::{info, warn};

const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Minimum time between two writes. If another client keeps changing our keys, the API server is not flooded.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);

/// The part of the node that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Annotations and labels.
    Metadata,
    /// The taint of lost GPUs.
    Taint,
    /// Capacity and allocatable amounts: the sub-resource `status`.
    Status,
}

/// Writes one part of the node. Each part has its own rate, so that a refusal of one does not delay the other.
pub(super) struct NodeWriter {
    part: Part,
    backoff: Backoff,
    not_before: Instant,
}

impl NodeWriter {
    pub(super) fn new(part: Part) -> Self {
        Self { part, backoff: Backoff::new(BETWEEN_WRITES, LONGEST_PAUSE), not_before: Instant::now() }
    }

    /// Waits until the next write is allowed.
    pub(super) async fn allowed(&self) {
        tokio::time::sleep_until(self.not_before).await;
    }

    /// Writes the patch. Returns the node, or `None` if that failed.
    pub(super) async fn write(&mut self, nodes: &Api<Node>, node: &str, patch: &Value) -> Option<Node> {
        self.not_before = Instant::now() + BETWEEN_WRITES;
        let (parameters, merge) = (PatchParams::default(), Patch::Merge(patch));
        let written = match self.part {
            Part::Metadata | Part::Taint => nodes.patch(node, &parameters, &merge).await,
            Part::Status => nodes.patch_status(node, &parameters, &merge).await,
        };
        match written {
            Ok(node) => {
                self.backoff.succeeded();
                info!(part = ?self.part, %patch, "wrote the node");
                Some(node)
            }
            Err(why) => {
                warn!(part = ?self.part, %why, "cannot write the node");
                self.not_before = Instant::now() + self.backoff.next_delay();
                None
            }
        }
    }
}
