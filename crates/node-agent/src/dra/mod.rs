//! Shares of GPUs as claims of Dynamic Resource Allocation (DRA): on nodes with the label [`NODE_LABEL`], in place of the device plugin.
//!
//! * `device`: GPUs to the devices of a ResourceSlice. Pure.
//! * `claim`, `config`: an allocated claim to the shares that it promises. Pure.
//! * `checkpoint`: the prepared claims on disk. `library_device`: the CDI device of what each container gets beside its GPU.
//! * `resource_slice`: publishes the devices. `driver`: what kubelet asks for. `server`: the two sockets for kubelet.
//!
//! The prepared claims go the way of annotated pods: `pods::assign` makes clients of them.

mod checkpoint;
mod claim;
mod config;
mod device;
mod driver;
mod library_device;
mod resource_slice;
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use kube::Client;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use claim::{GpuShare, PreparedClaim};

use crate::device_plugin::Provision;
use crate::node::events::EventQueue;
use crate::nri::CdiFolders;
use crate::pods::{AssignmentsWatch, PodsWatch};

pub(crate) use checkpoint::Checkpoint;
use driver::ClaimDriver;

/// The driver's name, and the domain of its attributes and of its configuration.
pub(crate) const DRIVER: &str = "gpu.sluice.dev";

/// Label with the value `true` of a node whose GPUs are given by claims.
pub(crate) const NODE_LABEL: &str = "sluice.dev/dra";

/// The prepared claims of this node by uid.
pub type PreparedClaims = BTreeMap<String, PreparedClaim>;

/// Where the driver is found, and what containers get.
pub(crate) struct Settings {
    /// Kubelet's root folder.
    pub(crate) kubelet_folder: PathBuf,
    /// The folder for the CDI specification of the library.
    pub(crate) cdi_folder: PathBuf,
    pub(crate) provision: Provision,
}

/// What the driver works with.
pub(crate) struct Inputs {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) inventory: watch::Receiver<NodeInventory>,
    pub(crate) pods: PodsWatch,
    pub(crate) assignments: AssignmentsWatch,
    /// Where the CDI devices of GPUs are.
    pub(crate) cdi: CdiFolders,
    pub(crate) checkpoint: Checkpoint,
    /// The prepared claims, as far as the checkpoint has them.
    pub(crate) prepared: watch::Sender<Arc<PreparedClaims>>,
}

/// Publishes the devices and serves kubelet until `stop`. `registered` tells readiness whether kubelet has accepted the driver.
///
/// # Errors
/// What prevents the start, or what has ended.
pub(crate) async fn run(
    settings: Settings,
    inputs: Inputs,
    events: EventQueue,
    registered: watch::Sender<bool>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let folder: &Path = &settings.cdi_folder;
    let context = || format!("cannot write the CDI specification of the library in {}", folder.display());
    library_device::write(folder, &settings.provision).with_context(context)?;
    let (client, node, inventory) = (inputs.client.clone(), inputs.node.clone(), inputs.inventory.clone());
    let driver = Arc::new(ClaimDriver::new(inputs));
    tokio::select! {
        ended = server::serve(Arc::clone(&driver), &settings.kubelet_folder, registered, stop) => ended,
        () = driver.drop_stale() => Ok(()),
        () = resource_slice::publish(client, node, inventory, events) => bail!("the GPU inventory ended"),
    }
}
