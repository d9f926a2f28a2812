//! What a container with a GPU lacks. Pure.

use std::path::Path;

use sluice_proto::nri::{CdiDevice, Container, ContainerAdjustment, KeyValue, Mount};

use super::{VISIBLE_DEVICES, VOID};
use crate::device_plugin::{LOADER_FILE, Provision};

/// The mounts and variables of `provision` that the container does not have yet, and the devices by their CDI names.
///
/// Kubelet's Allocate brings the same mounts, and a container that is created again has them from kubelet's checkpoint. A
/// mount of the pod at the same place is replaced.
pub(super) fn adjustment(
    container: &Container,
    provision: &Provision,
    devices: Vec<String>,
) -> ContainerAdjustment {
    let has = |destination: &str, source: &str| {
        container.mounts.iter().any(|mount| mount.destination == destination && mount.source == source)
    };
    let lacking = provision.mounts().iter().filter(|mount| !has(&mount.container_path, &mount.host_path));
    let mounts = lacking.map(|mount| Mount {
        destination: mount.container_path.clone(),
        r#type: "bind".to_owned(),
        source: mount.host_path.clone(),
        options: ["rbind", "rprivate", "ro"].map(str::to_owned).to_vec(),
    });
    let mut env: Vec<(&str, &str)> =
        provision.environment().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if !devices.is_empty() {
        env.push((VISIBLE_DEVICES, VOID));
    }
    let lacking = env.into_iter().filter(|(key, value)| !has_variable(container, key, value));
    let env = lacking.map(|(key, value)| KeyValue { key: key.to_owned(), value: value.to_owned() });
    ContainerAdjustment {
        mounts: mounts.collect(),
        env: env.collect(),
        cdi_devices: devices.into_iter().map(|name| CdiDevice { name }).collect(),
    }
}

/// Whether the container loads Sluice's library, of whatever version.
pub(super) fn has_library(container: &Container, library_folder: &Path) -> bool {
    let is_ours = |mount: &Mount| {
        mount.destination == LOADER_FILE && Path::new(&mount.source).starts_with(library_folder)
    };
    container.mounts.iter().any(is_ours)
}

/// Whether the devices of the container came from a plugin, and not from NVIDIA's runtime.
pub(super) fn was_given_devices(container: &Container) -> bool {
    has_variable(container, VISIBLE_DEVICES, VOID)
}

fn has_variable(container: &Container, key: &str, value: &str) -> bool {
    container.env.iter().any(|entry| entry.split_once('=') == Some((key, value)))
}

#[cfg(test)]
mod tests;
