//! Watches nodes and updates the index from their inventory annotation.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use kube::api::Api;
use kube::runtime::watcher;
use sluice_placement::annotations::keys;
use sluice_placement::inventory::NodeInventory;

use super::extender::Extender;
use super::leadership::WatchedKind;
use super::objects::Node;
use super::watch_loop::{Sink, run_watch};

pub(crate) async fn follow(extender: &Extender) {
    let api: Api<Node> = Api::all(extender.client.clone());
    run_watch(
        extender,
        api,
        watcher::Config::default(),
        Nodes { extender, known: HashMap::new(), listed: HashSet::new() },
    )
    .await;
}

struct Nodes<'a> {
    extender: &'a Extender,
    /// Nodes in the index, with a digest of the annotation that they were built from. Most events of a node do not
    /// change it.
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
    const KIND: WatchedKind = WatchedKind::Nodes;

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

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
