//! The pods of this node as the API server tells of them.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{PodView, Pods};
use crate::managers::Backoff;

/// Length of one watch. A connection that died without a word is noticed a little later than this.
const WATCH_SECONDS: u32 = 120;
/// Pauses between attempts to reach an API server that is away. One watch per node is cheap for it, and after an outage
/// each second counts for the pods that were bound meanwhile.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the pods of `node` for ever. While the API server is away everything stays as it was last known; after a new list
/// those that it no longer has are gone.
pub async fn follow(client: Client, node: String, known: watch::Sender<Option<Arc<Pods>>>) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}")).timeout(WATCH_SECONDS);
    let events = watcher(Api::<Pod>::all(client), config);
    let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let events =
        events.inspect_err(|why| warn!(%why, "the API server does not tell of pods; what is known stays"));
    let mut events = std::pin::pin!(events.backoff(pauses));
    let mut book = Book::default();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let is_complete = matches!(event, watcher::Event::InitDone);
        if let Some(pods) = book.read(event) {
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

/// The pods, and those of a new list that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pods: Pods,
    relist: Option<Pods>,
}

impl Book {
    /// Takes what the watch says. The pods where they may have changed; `None` while a new list is under way, which says
    /// nothing until it is complete.
    pub(crate) fn read(&mut self, event: watcher::Event<Pod>) -> Option<&Pods> {
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

    fn known(book: &Book) -> Vec<&str> {
        book.pods.keys().map(String::as_str).collect()
    }

    #[test]
    fn while_a_new_list_is_under_way_the_old_pods_stay_and_afterwards_only_the_listed_ones() {
        let mut book = Book::default();
        for event in [Event::Init, Event::InitApply(pod("a")), Event::InitApply(pod("b")), Event::InitDone] {
            book.read(event);
        }
        assert_eq!(known(&book), ["a", "b"]);
        assert!(book.read(Event::Init).is_none());
        assert!(book.read(Event::InitApply(pod("b"))).is_none());
        assert_eq!(known(&book), ["a", "b"]);
        // The list broke off and begins again.
        assert!(book.read(Event::Init).is_none());
        assert!(book.read(Event::InitApply(pod("b"))).is_none());
        assert!(book.read(Event::InitApply(pod("c"))).is_none());
        assert!(book.read(Event::InitDone).is_some());
        assert_eq!(known(&book), ["b", "c"]);
    }

    #[test]
    fn pods_come_and_go_by_their_uid_even_under_the_same_name() {
        let mut book = Book::default();
        let named = |uid: &str| {
            serde_json::from_value::<Pod>(json!({"metadata": {"uid": uid, "name": "web-0"}})).unwrap()
        };
        book.read(Event::Init);
        book.read(Event::InitDone);
        book.read(Event::Apply(named("old")));
        book.read(Event::Apply(named("new")));
        book.read(Event::Delete(named("old")));
        assert_eq!(known(&book), ["new"]);
    }
}
