//! The driver with its devices, from its start to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::driver::{ClaimDriver, Inputs};
use super::{library_device, resource_slice, server};
use crate::device_plugin::Provision;
use crate::lost_gpus::LostGpus;
use crate::node::events::EventQueue;

/// Where the driver is found, and what containers get.
pub(crate) struct Settings {
    /// Kubelet's root folder.
    pub(crate) kubelet_folder: PathBuf,
    /// The folder for the CDI specification of the library.
    pub(crate) cdi_folder: PathBuf,
    pub(crate) provision: Provision,
    /// The GPUs whose devices are tainted for eviction, once they are overdue.
    pub(crate) lost: watch::Receiver<LostGpus>,
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
        () = resource_slice::publish(client, node, inventory, settings.lost, events) => bail!("the GPU inventory ended"),
    }
}
