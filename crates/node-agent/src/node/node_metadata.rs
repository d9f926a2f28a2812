//! The node's annotation `sluice.dev/gpus` and its labels. They are written whenever they differ from the inventory,
//! even if another client changed them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_placement::annotations::keys;
use sluice_placement::inventory::{self, NodeInventory};
use sluice_rate_limiter::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::watch_backoff::WatchBackoff;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Minimum time between two writes. If another client keeps changing our keys, the API server is not flooded.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);

/// Keeps annotation and labels equal to the inventory, for ever.
pub async fn reconcile(client: Client, node: String, mut inventory: watch::Receiver<NodeInventory>) {
    let api = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let events = watcher(api, config).backoff(WatchBackoff::new(FIRST_PAUSE, LONGEST_PAUSE));
    let mut events = std::pin::pin!(events);
    let nodes = Api::<Node>::all(client);
    let mut seen: Option<ObjectMeta> = None;
    let mut backoff = Backoff::new(BETWEEN_WRITES, LONGEST_PAUSE);
    let mut not_before = Instant::now();
    loop {
        let patch = {
            let wanted = inventory.borrow_and_update();
            seen.as_ref().and_then(|metadata| patch(metadata, &wanted))
        };
        let is_behind = patch.is_some();
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node))) => seen = Some(node.metadata),
                Some(Ok(watcher::Event::Delete(_))) => seen = None,
                Some(Ok(_)) => {}
                Some(Err(why)) => warn!(%why, "the watch of this node failed"),
                None => return,
            },
            changed = inventory.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(not_before), if is_behind => {
                let Some(patch) = patch else { continue };
                not_before = Instant::now() + BETWEEN_WRITES;
                match nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(node) => {
                        backoff.succeeded();
                        info!(%patch, "wrote the node's annotation and labels");
                        seen = Some(node.metadata);
                    }
                    Err(why) => {
                        warn!(%why, "cannot write the node's annotation and labels");
                        not_before = Instant::now() + backoff.next_delay();
                    }
                }
            }
        }
    }
}

/// Removes annotation and labels, when the agent leaves the node for good.
///
/// # Errors
/// The API server's error.
pub async fn remove(client: Client, node: &str) -> kube::Result<()> {
    let nodes = Api::<Node>::all(client);
    let labels: BTreeMap<&str, Value> =
        [inventory::LABEL_PRESENT, inventory::LABEL_COUNT, inventory::LABEL_MODEL]
            .map(|key| (key, Value::Null))
            .into();
    let patch = json!({"metadata": {"annotations": {(keys::NODE_GPUS): null}, "labels": labels}});
    match nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await {
        // A node that is gone has no metadata.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// The patch that makes a node's metadata equal to the inventory; `None` if they are equal.
fn patch(metadata: &ObjectMeta, inventory: &NodeInventory) -> Option<Value> {
    let annotation = match inventory.to_annotation() {
        Ok(annotation) => annotation,
        Err(why) => {
            warn!(%why, "the inventory cannot be serialised");
            return None;
        }
    };
    let wanted_labels = inventory.labels();
    let labels = wanted_labels.iter().map(|(key, value)| (*key, value.as_deref()));
    let labels = differences(metadata.labels.as_ref(), labels);
    let annotations =
        differences(metadata.annotations.as_ref(), [(keys::NODE_GPUS, Some(annotation.as_str()))]);
    let mut change = serde_json::Map::new();
    for (field, differences) in [("annotations", annotations), ("labels", labels)] {
        if !differences.is_empty() {
            change.insert(field.to_owned(), Value::Object(differences));
        }
    }
    (!change.is_empty()).then(|| json!({ "metadata": change }))
}

fn differences<'a>(
    there: Option<&BTreeMap<String, String>>,
    wanted: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> serde_json::Map<String, Value> {
    let is = |key: &str| there.and_then(|there| there.get(key)).map(String::as_str);
    let differing = wanted.into_iter().filter(|(key, value)| is(key) != *value);
    differing.map(|(key, value)| (key.to_owned(), value.map_or(Value::Null, Value::from))).collect()
}

#[cfg(test)]
mod tests;
