//! Publishes the node's devices as a ResourceSlice, and again whenever the GPUs change or the slice is gone: kubelet deletes it at its start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use sluice_placement::inventory::NodeInventory;
use sluice_rate_limiter::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::device::{LostSince, devices};
use crate::lost_gpus::LostGpus;
use crate::node::events::{EventQueue, Reason, about_node};
use crate::prepared_claims::DRIVER;
use crate::watch_backoff::WatchBackoff;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const FIELD_MANAGER: &str = "sluice-node-agent";
/// Where the kernel lists PCI devices.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Why the slice is not published.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NotPublished {
    /// A request failed.
    #[error("{0}")]
    Request(String),
    /// The node's object is not there to own the slice.
    #[error("the API server has no node of this name")]
    NoNode,
    /// The API server drops fields that the driver needs.
    #[error(
        "the API server drops the field {0} of devices: shares as claims need Kubernetes 1.36, or the feature gates \
         DRAConsumableCapacity and DRADeviceTaints"
    )]
    Dropped(&'static str),
}

/// Keeps the slice as it should be, for ever.
pub(crate) async fn publish(
    client: Client,
    node: String,
    mut inventory: watch::Receiver<NodeInventory>,
    mut lost: watch::Receiver<LostGpus>,
    events: EventQueue,
) {
    let slices = Api::<ResourceSlice>::all(client.clone());
    let selector = format!("spec.nodeName={node},spec.driver={DRIVER}");
    let watched = watcher(slices.clone(), watcher::Config::default().fields(&selector));
    let mut watched = std::pin::pin!(watched.backoff(WatchBackoff::new(FIRST_PAUSE, LONGEST_PAUSE)));
    // What the slice contains; `None` if it is not there, or not known to be.
    let mut published: Option<Vec<Device>> = None;
    let mut is_listed = false;
    let mut is_there = false;
    let mut last_failure = None;
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut not_before = Instant::now();
    let mut lost_since = LostSince::new();
    loop {
        follow_losses(&mut lost_since, &lost.borrow_and_update(), jiff::Timestamp::now());
        let wanted = {
            let gpus = inventory.borrow_and_update();
            devices(&gpus, &pcie_roots(&gpus, Path::new(PCI_DEVICES)), &lost_since)
        };
        let differs = published.as_ref() != Some(&wanted);
        tokio::select! {
            event = watched.next() => match event {
                Some(Ok(watcher::Event::Init)) => is_there = false,
                Some(Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_))) => is_there = true,
                Some(Ok(watcher::Event::InitDone)) => {
                    is_listed = true;
                    published = published.filter(|_| is_there);
                }
                Some(Ok(watcher::Event::Delete(_))) => published = None,
                Some(Err(why)) => warn!(%why, "the watch of this node's ResourceSlice failed"),
                None => return,
            },
            changed = inventory.changed() => if changed.is_err() { return },
            Ok(()) = lost.changed() => {}
            () = tokio::time::sleep_until(not_before), if is_listed && differs => {
                match write(&client, &slices, &node, wanted.clone()).await {
                    Ok(()) => {
                        info!(devices = wanted.len(), "published the node's devices");
                        published = Some(wanted);
                        last_failure = None;
                        backoff.succeeded();
                        not_before = Instant::now() + FIRST_PAUSE;
                    }
                    Err(why) => {
                        warn!(%why, "cannot publish the node's devices");
                        if last_failure.as_ref() != Some(&why) {
                            let note = format!("no claim can be allocated on this node: {why}");
                            events.publish(about_node(&node), Reason::ClaimsUnavailable, note);
                        }
                        let wait = if matches!(why, NotPublished::Dropped(_)) { LONGEST_PAUSE } else { backoff.next_delay() };
                        not_before = Instant::now() + wait;
                        last_failure = Some(why);
                    }
                }
            }
        }
    }
}

async fn write(
    client: &Client,
    slices: &Api<ResourceSlice>,
    node: &str,
    devices: Vec<Device>,
) -> Result<(), NotPublished> {
    let failed = |why: kube::Error| NotPublished::Request(why.to_string());
    let this_node = ListParams::default().fields(&format!("metadata.name={node}"));
    let nodes = Api::<Node>::all(client.clone()).list(&this_node).await.map_err(failed)?;
    let uid = nodes.items.into_iter().find_map(|node| node.metadata.uid).ok_or(NotPublished::NoNode)?;
    let wanted = slice(node, uid, devices);
    let name = slice_name(node);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let stored = slices.patch(&name, &parameters, &Patch::Apply(&wanted)).await.map_err(failed)?;
    match dropped(&wanted.spec, &stored.spec) {
        None => Ok(()),
        Some(field) => {
            // kube-scheduler would give each GPU to one claim, whole.
            slices.delete(&name, &DeleteParams::default()).await.map_err(failed)?;
            Err(NotPublished::Dropped(field))
        }
    }
}

/// Deletes the slice if there is one.
pub(crate) async fn withdraw(client: &Client, node: &str) -> kube::Result<()> {
    let slices = Api::<ResourceSlice>::all(client.clone());
    match slices.delete(&slice_name(node), &DeleteParams::default()).await {
        Ok(_) => {
            info!("deleted the node's devices: it gives device slots");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(why) => Err(why),
    }
}

/// Notes since when each GPU is lost for longer than the grace period, and forgets those that are back.
fn follow_losses(since: &mut LostSince, lost: &LostGpus, now: jiff::Timestamp) {
    let is_overdue = |gpu: &String| lost.get(gpu).is_some_and(|lost| lost.is_overdue);
    since.retain(|gpu, _| is_overdue(gpu));
    for gpu in lost.keys().filter(|gpu| is_overdue(gpu)) {
        since.entry(gpu.clone()).or_insert(Time(now));
    }
}

fn slice_name(node: &str) -> String {
    format!("{node}-{DRIVER}")
}

/// The node owns its slice, which ends with it. All devices are in one slice, so the pool's generation never changes.
fn slice(node: &str, uid: String, devices: Vec<Device>) -> ResourceSlice {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid,
        ..OwnerReference::default()
    };
    ResourceSlice {
        metadata: ObjectMeta {
            name: Some(slice_name(node)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: DRIVER.to_owned(),
            node_name: Some(node.to_owned()),
            pool: ResourcePool { name: node.to_owned(), generation: 1, resource_slice_count: 1 },
            devices: Some(devices),
            ..ResourceSliceSpec::default()
        },
    }
}

/// The field of devices that the API server has not stored.
fn dropped(wanted: &ResourceSliceSpec, stored: &ResourceSliceSpec) -> Option<&'static str> {
    let are_shared = |device: &Device| device.allow_multiple_allocations == Some(true);
    let have_taints = |device: &Device| device.taints.as_ref().is_some_and(|taints| !taints.is_empty());
    if count(wanted, are_shared) != count(stored, are_shared) {
        return Some("allowMultipleAllocations");
    }
    (count(wanted, have_taints) != count(stored, have_taints)).then_some("taints")
}

fn count(spec: &ResourceSliceSpec, has: impl Fn(&Device) -> bool) -> usize {
    spec.devices.iter().flatten().filter(|device| has(device)).count()
}

/// The PCIe root of each GPU whose link in `devices` the kernel has.
fn pcie_roots(inventory: &NodeInventory, devices: &Path) -> BTreeMap<String, String> {
    let root = |pci: &str| {
        // ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0
        let target = fs::read_link(devices.join(pci)).ok()?;
        let parts = target.iter().filter_map(|part| part.to_str());
        parts.skip_while(|part| *part != "devices").nth(1).map(str::to_owned)
    };
    let gpus = inventory.gpus.iter();
    gpus.filter_map(|gpu| Some((gpu.uuid.clone(), root(&gpu.pci).filter(|root| root.starts_with("pci"))?)))
        .collect()
}

#[cfg(test)]
mod tests;
