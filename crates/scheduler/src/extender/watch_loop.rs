//! Runs one watch for ever, across terms of leadership, and delivers its events to a [`Sink`].

use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt;
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;

use super::extender::Extender;
use super::leadership::WatchedKind;

/// Receives the events of one watch.
pub(super) trait Sink {
    type Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static;
    const KIND: WatchedKind;

    /// A whole list begins.
    fn begin(&mut self);
    /// An object as it is now.
    fn apply(&mut self, object: &Self::Object);
    /// An object is gone.
    fn delete(&mut self, object: &Self::Object);
    /// The list is complete: objects that were not in it are gone.
    fn complete(&mut self);
}

/// Length of one watch, after which it is opened again. A connection that died silently is noticed then.
const WATCH_SECONDS: u32 = 120;

/// Delivers the events of one watch for ever. Each term starts with a new list, which begins when the binds of the previous
/// term have taken effect. The API server answers it from a quorum read, so it contains them.
pub(super) async fn run_watch<S: Sink>(
    extender: &Extender,
    api: Api<S::Object>,
    config: watcher::Config,
    mut sink: S,
) {
    loop {
        let term = extender.leadership.term();
        tokio::select! {
            () = extender.leadership.settled(extender.policy.settle) => {}
            () = extender.leadership.next_term(term) => continue,
        }
        let mut stream = pin!(watcher(api.clone(), config.clone().timeout(WATCH_SECONDS)).default_backoff());
        let mut next_term = pin!(extender.leadership.next_term(term));
        loop {
            let event = tokio::select! {
                biased;
                () = &mut next_term => break,
                event = stream.next() => event,
            };
            let is_change = !matches!(event, Some(Err(_)) | None);
            match event {
                Some(Ok(watcher::Event::Init)) => sink.begin(),
                Some(Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                    sink.apply(&object)
                }
                Some(Ok(watcher::Event::Delete(object))) => sink.delete(&object),
                Some(Ok(watcher::Event::InitDone)) => {
                    sink.complete();
                    extender.leadership.record_list(S::KIND, term);
                }
                Some(Err(error)) => {
                    extender.metrics.watch_errors.inc();
                    tracing::warn!(%error, kind = ?S::KIND, "watch interrupted");
                }
                None => break,
            }
            if is_change {
                extender.changed();
            }
        }
    }
}
