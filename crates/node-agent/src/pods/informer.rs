//! The pods of this node, from a watch of the API server.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{PodView, Pods};
use crate::tasks::replace_if_new;
use crate::watch_backoff::WatchBackoff;

/// Length of one watch. A connection that died silently is noticed a little later than this.
const WATCH_SECONDS: u32 = 120;
/// Delays between attempts to reach an unavailable API server. One watch per node is cheap for the server. After an
/// outage each second counts for the pods that were bound meanwhile.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the pods of `node` for ever. While the API server is unavailable, the last known pods remain. After a new
/// list, pods that it does not contain are removed.
pub async fn follow(client: Client, node: String, known: watch::Sender<Option<Arc<Pods>>>) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}")).timeout(WATCH_SECONDS);
    let events = watcher(Api::<Pod>::all(client), config);
    let pauses = WatchBackoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let events =
        events.inspect_err(|why| warn!(%why, "the watch of pods failed; the last known pods remain"));
    let mut events = std::pin::pin!(events.backoff(pauses));
    let mut store = PodStore::default();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let is_complete = matches!(event, watcher::Event::InitDone);
        if let Some(pods) = store.apply(event) {
            if is_complete {
                info!(pods = pods.len(), "listed the node's pods");
            }
            let pods = Some(Arc::new(pods.clone()));
            known.send_if_modified(|last| replace_if_new(last, pods));
        }
    }
}

/// The known pods, and those of a new list that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct PodStore {
    pods: Pods,
    relist: Option<Pods>,
}

impl PodStore {
    /// Applies an event of the watch. Returns the pods if they may have changed; `None` while a new list is
    /// incomplete.
    pub(crate) fn apply(&mut self, event: watcher::Event<Pod>) -> Option<&Pods> {
        match event {
            watcher::Event::Init => {
                self.relist = Some(Pods::new());
                return None;
            }
            watcher::Event::InitApply(pod) => {
                let view = PodView::of(&pod)?;
                self.relist.get_or_insert_default().insert(view.uid.clone(), Arc::new(view));
                return None;
            }
            watcher::Event::InitDone => self.pods = self.relist.take().unwrap_or_default(),
            watcher::Event::Apply(pod) => {
                let view = PodView::of(&pod)?;
                self.pods.insert(view.uid.clone(), Arc::new(view));
            }
            watcher::Event::Delete(pod) => {
                self.pods.remove(pod.metadata.uid.as_deref()?);
            }
        }
        Some(&self.pods)
    }
}

#[cfg(test)]
mod tests;
