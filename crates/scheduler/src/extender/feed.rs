//! Watches become the index: nodes by their inventory annotation, pods by what they were given.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::pin::pin;

use futures::StreamExt;
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use sluice_core::inventory::NodeInventory;
use sluice_core::placement::Demand;
use sluice_core::request::{GpuRequest, assigned, keys};

use super::extender::Extender;
use super::objects::{Node, Pod};
use super::role::Kind;

/// What takes in the events of one watch.
trait Sink {
    type Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static;
    const KIND: Kind;

    /// A whole list begins.
    fn begin(&mut self);
    /// An object as it is now.
    fn apply(&mut self, object: &Self::Object);
    /// An object is gone.
    fn delete(&mut self, object: &Self::Object);
    /// The list is complete: what was not in it is gone.
    fn complete(&mut self);
}

/// A watch is asked for anew after so long: a connection that died in silence is noticed then.
const WATCH_SECONDS: u32 = 120;

/// Feeds the index from one watch for ever. In each new term of ours it begins anew with a list, which the API server
/// answers from what is agreed at that moment, a little later, so that what the last leader sent at its end is in it.
async fn feed<S: Sink>(extender: &Extender, api: Api<S::Object>, config: watcher::Config, mut sink: S) {
    loop {
        let term = extender.role.term();
        if term > 0 {
            tokio::time::sleep(extender.policy.settle).await;
        }
        let mut stream = pin!(watcher(api.clone(), config.clone().timeout(WATCH_SECONDS)).default_backoff());
        let mut next_term = pin!(extender.role.next_term(term));
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
                    extender.role.listed(S::KIND, term);
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

/// Feeds the nodes.
pub(crate) async fn nodes(extender: &Extender) {
    let api: Api<Node> = Api::all(extender.client.clone());
    feed(
        extender,
        api,
        watcher::Config::default(),
        Nodes { extender, known: HashMap::new(), listed: HashSet::new() },
    )
    .await;
}

/// Feeds the pods of one scheduler, or all.
pub(crate) async fn pods(extender: &Extender, scheduler_name: Option<&str>) {
    let api: Api<Pod> = Api::all(extender.client.clone());
    let config = match scheduler_name {
        Some(name) => watcher::Config::default().fields(&format!("spec.schedulerName={name}")),
        None => watcher::Config::default(),
    };
    feed(extender, api, config, Pods { extender, listed: HashSet::new() }).await;
}

struct Nodes<'a> {
    extender: &'a Extender,
    /// Nodes that the index has, and a digest of the annotation that it was built from: most events of a node are about
    /// something else.
    known: HashMap<String, u64>,
    listed: HashSet<String>,
}

impl Nodes<'_> {
    fn forget(&mut self, name: &str) {
        if self.known.remove(name).is_some() {
            self.extender.state().index.remove_node(name);
        }
    }
}

impl Sink for Nodes<'_> {
    type Object = Node;
    const KIND: Kind = Kind::Nodes;

    fn begin(&mut self) {
        self.listed.clear();
    }

    fn apply(&mut self, node: &Node) {
        let name = node.name();
        self.listed.insert(name.to_owned());
        let Some(text) = node.annotation(keys::NODE_GPUS) else { return self.forget(name) };
        let digest = digest(text);
        if self.known.insert(name.to_owned(), digest) == Some(digest) {
            return;
        }
        match NodeInventory::from_annotation(text) {
            Ok(inventory) => self.extender.state().index.set_node(name, &inventory),
            Err(error) => {
                tracing::warn!(node = name, %error, "the annotation {} is not readable", keys::NODE_GPUS);
                self.extender.state().index.remove_node(name);
            }
        }
    }

    fn delete(&mut self, node: &Node) {
        self.forget(node.name());
    }

    fn complete(&mut self) {
        let gone: Vec<String> =
            self.known.keys().filter(|name| !self.listed.contains(*name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
        self.listed = HashSet::new();
    }
}

/// Takes in one pod as the API server has it, as if the watch had shown it.
pub(crate) fn take_in(extender: &Extender, pod: &Pod) {
    Pods { extender, listed: HashSet::new() }.apply(pod);
    extender.changed();
}

struct Pods<'a> {
    extender: &'a Extender,
    listed: HashSet<String>,
}

impl Sink for Pods<'_> {
    type Object = Pod;
    const KIND: Kind = Kind::Pods;

    fn begin(&mut self) {
        self.listed.clear();
        // What was bound until now is in the list that comes, unless it has ended.
        self.extender.state().unseen.clear();
    }

    fn apply(&mut self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        let mut state = self.extender.state();
        if pod.has_ended() {
            state.unseen.remove(uid);
            state.index.release(uid);
            return;
        }
        // An event from before the bind says nothing new about a pod that we know to be bound.
        let Some(node) = pod.node() else { return };
        state.unseen.remove(uid);
        match assignment(pod) {
            Some((gpus, demand)) => {
                self.listed.insert(uid.to_owned());
                state.index.confirm(uid, node, &gpus, &demand);
            }
            // Bound by someone else, without a GPU.
            None => drop(state.index.release(uid)),
        }
    }

    fn delete(&mut self, pod: &Pod) {
        if let Some(uid) = pod.uid() {
            let mut state = self.extender.state();
            state.unseen.remove(uid);
            state.index.release(uid);
        }
    }

    fn complete(&mut self) {
        let mut state = self.extender.state();
        let state = &mut *state;
        state.index.retain_confirmed(|uid| self.listed.contains(uid) || state.unseen.contains(uid));
        self.listed = HashSet::new();
    }
}

/// What a bound pod was given. Annotations that this version cannot read count as the GPUs entirely: they are given, and
/// must not be given twice.
fn assignment(pod: &Pod) -> Option<(Vec<String>, Demand)> {
    let annotations = pod.annotations()?;
    let gpus = match assigned(annotations) {
        Ok(gpus) => gpus?,
        Err(mistake) => {
            tracing::warn!(pod = pod.title(), %mistake, "an assignment that is not ours");
            return None;
        }
    };
    let demand = match GpuRequest::from_annotations(annotations) {
        Ok(Some(request)) => Demand::from(&request),
        unreadable => {
            tracing::warn!(
                pod = pod.title(),
                ?unreadable,
                "holds GPUs but does not say how much of them: counted as whole"
            );
            Demand::whole(u32::try_from(gpus.len()).unwrap_or(u32::MAX))
        }
    };
    Some((gpus, demand))
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
