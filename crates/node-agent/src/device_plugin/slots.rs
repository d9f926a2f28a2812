//! Device slots: how many containers may use this node's GPUs, as the devices that kubelet counts, and what a container
//! with a slot gets.

use super::held_slots::HeldSlots;
use crate::capacity::{NodeCapacity, SlotCounts};
use crate::library::Installed;
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Device, Mount,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
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

/// The device slots of a node: whether each is healthy, by its number.
///
/// A slot belongs to no GPU until a pod holds it. Then it has the health of the pod's GPUs, which kubelet shows in the pod's status.
/// The free slots complete the number of healthy slots, so that the scheduler sees the room of the healthy GPUs. The free slots with the
/// highest numbers are unhealthy, and are removed first. A slot that a pod holds keeps its name when GPUs change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceSlots(BTreeMap<u64, bool>);

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// It can be allocated.
    Healthy,
    /// It exists, but its pod's GPU has failed, or too few GPUs are healthy for it.
    Unhealthy,
    /// The node has no slot with this id.
    Unknown,
}

impl DeviceSlots {
    /// The slots of a node with this capacity, of which pods hold some. If it is not known which, no slot is unhealthy: it could be the
    /// slot of a pod on a healthy GPU. The scheduler places no pod on a failed GPU either way.
    pub(super) fn new(capacity: &NodeCapacity, held: Option<&HeldSlots>) -> Self {
        let counts = capacity.slots;
        let Some(held) = held else { return Self((0..counts.total).map(|number| (number, true)).collect()) };
        let has_ended = |pod: &String| capacity.ended_pods.contains(pod);
        let is_healthy = |pod: &String| !capacity.pods_on_failed_gpus.contains(pod);
        let held = held.iter().filter(|(_, pod)| !has_ended(pod));
        let mut slots: BTreeMap<u64, bool> = held.map(|(number, pod)| (*number, is_healthy(pod))).collect();
        let free_healthy = counts.healthy.saturating_sub(count(slots.values().filter(|healthy| **healthy)));
        // The unhealthy slots of pods may leave too few others for the healthy GPUs: kubelet is then told of more than `total`.
        let free = counts.total.saturating_sub(count(slots.values())).max(free_healthy);
        let mut numbers = 0..;
        for index in 0..free {
            let number = numbers.find(|number| !slots.contains_key(number)).unwrap_or_default();
            slots.insert(number, index < free_healthy);
        }
        Self(slots)
    }

    /// Numbers of all slots and of the healthy ones.
    pub(super) fn counts(&self) -> SlotCounts {
        let healthy = count(self.0.values().filter(|healthy| **healthy));
        SlotCounts { total: count(self.0.values()), healthy }
    }

    /// The device list for kubelet. It has no topology: a slot belongs to no NUMA node.
    pub(super) fn devices(&self) -> Vec<Device> {
        let device = |(number, healthy): (&u64, &bool)| {
            let health = if *healthy { HEALTHY } else { UNHEALTHY };
            Device { id: format!("{PREFIX}{number}"), health: health.to_owned(), topology: None }
        };
        self.0.iter().map(device).collect()
    }

    /// State of the slot with this id.
    pub(super) fn state_of(&self, id: &str) -> SlotState {
        match slot_number(id).and_then(|number| self.0.get(&number)) {
            Some(true) => SlotState::Healthy,
            Some(false) => SlotState::Unhealthy,
            None => SlotState::Unknown,
        }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}

/// The number in an id that is written exactly as this module writes it: no sign, no leading zeros.
pub(super) fn slot_number(id: &str) -> Option<u64> {
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
    pub(super) fn answer(
        &self,
        slots: &DeviceSlots,
        request: &AllocateRequest,
    ) -> Result<AllocateResponse, Refusal> {
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
pub(super) enum Refusal {
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

fn check(slots: &DeviceSlots, container: &ContainerAllocateRequest) -> Result<(), Refusal> {
    let SlotCounts { total, healthy } = slots.counts();
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
