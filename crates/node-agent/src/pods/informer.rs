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
        events.inspect_err(|why| warn!(%why, "the API server does not tell of pods; what is known stays"));
    let mut events = std::pin::pin!(events.backoff(pauses));
    let mut store = PodStore::default();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let is_complete = matches!(event, watcher::Event::InitDone);
        if let Some(pods) = store.apply(event) {
            if is_complete {
                info!(pods = pods.len(), "the node's pods are known");
            }
            let pods = Arc::new(pods.clone());
            known.send_if_modified(|last| {
                let is_news = last.as_ref() != Some(&pods);
                if is_news {
                    *last = Some(pods);
                }
                is_news
            });
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
mod tests {
    use super::*;
    use serde_json::json;
    use watcher::Event;

    fn pod(uid: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}})).unwrap()
    }

    fn known(store: &PodStore) -> Vec<&str> {
        store.pods.keys().map(String::as_str).collect()
    }

    #[test]
    fn while_a_new_list_is_under_way_the_old_pods_stay_and_afterwards_only_the_listed_ones() {
        let mut store = PodStore::default();
        for event in [Event::Init, Event::InitApply(pod("a")), Event::InitApply(pod("b")), Event::InitDone] {
            store.apply(event);
        }
        assert_eq!(known(&store), ["a", "b"]);
        assert!(store.apply(Event::Init).is_none());
        assert!(store.apply(Event::InitApply(pod("b"))).is_none());
        assert_eq!(known(&store), ["a", "b"]);
        // The list breaks off and starts again.
        assert!(store.apply(Event::Init).is_none());
        assert!(store.apply(Event::InitApply(pod("b"))).is_none());
        assert!(store.apply(Event::InitApply(pod("c"))).is_none());
        assert!(store.apply(Event::InitDone).is_some());
        assert_eq!(known(&store), ["b", "c"]);
    }

    #[test]
    fn pods_come_and_go_by_their_uid_even_under_the_same_name() {
        let mut store = PodStore::default();
        let named = |uid: &str| {
            serde_json::from_value::<Pod>(json!({"metadata": {"uid": uid, "name": "web-0"}})).unwrap()
        };
        store.apply(Event::Init);
        store.apply(Event::InitDone);
        store.apply(Event::Apply(named("old")));
        store.apply(Event::Apply(named("new")));
        store.apply(Event::Delete(named("old")));
        assert_eq!(known(&store), ["new"]);
    }
}
