//! Device slots: how many containers may use this node's GPUs, as the devices that kubelet counts, and what a container
//! with a slot gets.

use crate::library::Installed;
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Device, Mount,
};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Kubelet's values for health, from the constants of its API.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";
const PREFIX: &str = "sluice-seat-";

/// The dynamic loader of a container reads this file and loads the libraries that it names into every process.
pub(crate) const LOADER_FILE: &str = "/etc/ld.so.preload";
/// Where the hook looks for the socket of its GPU.
const SOCKET_FOLDER: &str = "/run/sluice";
/// Tells the hook what to do after it has lost its manager for good.
const ON_MANAGER_LOSS: &str = "SLUICE_ON_MANAGER_LOSS";

/// The device slots of a node: numbers 0 to `total`. Those from `healthy` on are unhealthy.
///
/// Slots are added and removed only at the end, so the slot of a running container keeps its name when GPUs change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlots {
    /// Slots of all GPUs, and those that pods of absent GPUs hold.
    pub total: u64,
    /// Slots of the healthy GPUs, and those that pods of unhealthy and of absent GPUs hold: kubelet and the scheduler subtract
    /// the slots of all pods of the node from this number.
    pub healthy: u64,
}

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// It can be allocated.
    Healthy,
    /// It exists, but too few GPUs are healthy for it.
    Unhealthy,
    /// The node has no slot with this id.
    Unknown,
}

impl DeviceSlots {
    /// The device list for kubelet. It has no topology: a slot belongs to no NUMA node.
    pub fn devices(self) -> Vec<Device> {
        let device = |number| {
            let health = if number < self.healthy { HEALTHY } else { UNHEALTHY };
            Device { id: format!("{PREFIX}{number}"), health: health.to_owned(), topology: None }
        };
        (0..self.total).map(device).collect()
    }

    /// State of the slot with this id.
    pub fn state_of(self, id: &str) -> SlotState {
        match number(id) {
            Some(number) if number < self.healthy => SlotState::Healthy,
            Some(number) if number < self.total => SlotState::Unhealthy,
            _ => SlotState::Unknown,
        }
    }
}

/// The number in an id that is written exactly as this module writes it: no sign, no leading zeros.
fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix(PREFIX)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// What each container with a device slot gets; the same for all. It contains no limit: a tenant could change its own
/// environment.
#[derive(Debug, Clone)]
pub struct Provision {
    mounts: Vec<Mount>,
    environment: HashMap<String, String>,
    /// Keeps the version in use, so that no agent collects it.
    _library: Installed,
}

impl Provision {
    /// Mounts the library's folder, the preload file and the folder of the sockets, all read-only.
    pub fn of(library: &Installed, sockets: impl AsRef<Path>) -> Self {
        let mount = |host: &Path, container: String| Mount {
            container_path: container,
            host_path: host.to_string_lossy().into_owned(),
            read_only: true,
        };
        let mounts = vec![
            mount(&library.folder, library.container_folder()),
            mount(&library.preload_file(), LOADER_FILE.to_owned()),
            mount(sockets.as_ref(), SOCKET_FOLDER.to_owned()),
        ];
        Self { mounts, environment: HashMap::new(), _library: library.clone() }
    }

    /// Also tells the hook what to do after it has lost its manager for good. `behaviour` is the hook's word for it.
    #[must_use]
    pub fn on_manager_loss(mut self, behaviour: &str) -> Self {
        self.environment.insert(ON_MANAGER_LOSS.to_owned(), behaviour.to_owned());
        self
    }

    /// What a container gets mounted.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The variables that a container gets.
    #[must_use]
    pub fn environment(&self) -> &HashMap<String, String> {
        &self.environment
    }

    /// One answer for each requested container.
    ///
    /// # Errors
    /// A container requests something other than healthy device slots of this node.
    pub fn answer(&self, slots: DeviceSlots, request: &AllocateRequest) -> Result<AllocateResponse, Refusal> {
        let given = ContainerAllocateResponse {
            envs: self.environment.clone(),
            mounts: self.mounts.clone(),
            ..ContainerAllocateResponse::default()
        };
        let answer = |container| check(slots, container).map(|()| given.clone());
        let container_responses = request.container_requests.iter().map(answer).collect::<Result<_, _>>()?;
        Ok(AllocateResponse { container_responses })
    }
}

/// Why an Allocate request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The container request names no slot.
    #[error("a container request names no device slot")]
    NoSlot,
    /// The slot was never listed, or is not listed any more.
    #[error("{id:?} is no device slot of this node, which has {total} (sluice-seat-0 to sluice-seat-<n>)")]
    Unknown { id: String, total: u64 },
    /// Too few GPUs are healthy.
    #[error("{id} is unhealthy: only {healthy} of this node's {total} device slots have a healthy GPU")]
    Unhealthy { id: String, healthy: u64, total: u64 },
    /// The same slot appears twice in the request.
    #[error("{id} is requested twice")]
    Duplicate { id: String },
}

fn check(slots: DeviceSlots, container: &ContainerAllocateRequest) -> Result<(), Refusal> {
    let DeviceSlots { total, healthy } = slots;
    let mut asked = BTreeSet::new();
    for id in &container.devices_ids {
        let id = id.clone();
        match slots.state_of(&id) {
            SlotState::Healthy if asked.contains(&id) => return Err(Refusal::Duplicate { id }),
            SlotState::Healthy => _ = asked.insert(id),
            SlotState::Unhealthy => return Err(Refusal::Unhealthy { id, healthy, total }),
            SlotState::Unknown => return Err(Refusal::Unknown { id, total }),
        }
    }
    if asked.is_empty() { Err(Refusal::NoSlot) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
