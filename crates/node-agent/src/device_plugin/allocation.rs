//! Allocate: what a container with a device slot gets.

use super::slots::{DeviceSlots, SlotState};
use crate::library::Installed;
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Mount,
};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The dynamic loader of a container reads this file and loads the libraries that it names into every process.
const LOADER_FILE: &str = "/etc/ld.so.preload";
/// Where the hook looks for the socket of its GPU.
const SOCKET_FOLDER: &str = "/run/sluice";
/// Tells the hook what to do after it has lost its manager for good.
const ON_MANAGER_LOSS: &str = "SLUICE_ON_MANAGER_LOSS";

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

    /// One answer for each requested container.
    ///
    /// # Errors
    /// A container requests something other than healthy device slots of this node.
    pub fn answer(&self, slots: DeviceSlots, request: &AllocateRequest) -> Result<AllocateResponse, Refusal> {
        let answer = |container| check(slots, container).map(|()| self.for_one());
        let container_responses = request.container_requests.iter().map(answer).collect::<Result<_, _>>()?;
        Ok(AllocateResponse { container_responses })
    }

    fn for_one(&self) -> ContainerAllocateResponse {
        ContainerAllocateResponse {
            envs: self.environment.clone(),
            mounts: self.mounts.clone(),
            ..ContainerAllocateResponse::default()
        }
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
    Unknown {
        /// The requested id.
        id: String,
        /// The node's slots.
        total: u64,
    },
    /// Too few GPUs are healthy.
    #[error("{id} is unhealthy: only {healthy} of this node's {total} device slots have a healthy GPU")]
    Unhealthy {
        /// The requested id.
        id: String,
        /// The node's slots with a healthy GPU.
        healthy: u64,
        /// The node's slots.
        total: u64,
    },
    /// The same slot appears twice in the request.
    #[error("{id} is requested twice")]
    Duplicate {
        /// The requested id.
        id: String,
    },
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
