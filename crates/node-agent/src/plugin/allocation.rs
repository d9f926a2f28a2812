//! Allocate: what a container with a seat gets.

use super::seats::{Seat, Seats};
use crate::library::Installed;
use sluice_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Mount,
};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The dynamic loader of a container reads this file and loads what it names into every process.
const LOADER_FILE: &str = "/etc/ld.so.preload";
/// Where the hook looks for its GPU's socket.
const SOCKET_FOLDER: &str = "/run/sluice";
/// What the hook does when it has lost its manager for good.
const ON_MANAGER_LOSS: &str = "SLUICE_ON_MANAGER_LOSS";

/// What each container with a seat gets, the same for all. Nothing in it says how much of a GPU the container may use:
/// what a tenant could change in its environment is no limit.
#[derive(Debug, Clone)]
pub struct Provision {
    mounts: Vec<Mount>,
    environment: HashMap<String, String>,
    /// Held so that nobody collects the version that we hand out.
    _library: Installed,
}

impl Provision {
    /// The library in its folder and the folder of the sockets, all read-only.
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

    /// Also tells the hook what to do when it has lost its manager for good, in its own words.
    #[must_use]
    pub fn on_manager_loss(mut self, behaviour: &str) -> Self {
        self.environment.insert(ON_MANAGER_LOSS.to_owned(), behaviour.to_owned());
        self
    }

    /// One answer for each container that is asked for.
    ///
    /// # Errors
    /// A container asks for something else than healthy seats of this node.
    pub fn answer(&self, seats: Seats, request: &AllocateRequest) -> Result<AllocateResponse, Refusal> {
        let answer = |container| check(seats, container).map(|()| self.for_one());
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

/// Why kubelet does not get what it asks for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A container without any.
    #[error("a container request names no seat")]
    NoSeat,
    /// Never listed, or not any more.
    #[error("{id:?} is no seat of this node, which has {total} (sluice-seat-0 to sluice-seat-<n>)")]
    Unknown {
        /// What was asked for.
        id: String,
        /// The node's seats.
        total: u64,
    },
    /// Too few GPUs are healthy.
    #[error("{id} is unhealthy: only {healthy} of this node's {total} seats have a healthy GPU")]
    Unhealthy {
        /// What was asked for.
        id: String,
        /// The node's seats with a GPU.
        healthy: u64,
        /// The node's seats.
        total: u64,
    },
    /// Twice in the same request.
    #[error("{id} is asked for twice")]
    Twice {
        /// What was asked for.
        id: String,
    },
}

fn check(seats: Seats, container: &ContainerAllocateRequest) -> Result<(), Refusal> {
    let Seats { total, healthy } = seats;
    let mut asked = BTreeSet::new();
    for id in &container.devices_ids {
        let id = id.clone();
        match seats.seat(&id) {
            Seat::Healthy if asked.contains(&id) => return Err(Refusal::Twice { id }),
            Seat::Healthy => _ = asked.insert(id),
            Seat::Unhealthy => return Err(Refusal::Unhealthy { id, healthy, total }),
            Seat::Unknown => return Err(Refusal::Unknown { id, total }),
        }
    }
    if asked.is_empty() { Err(Refusal::NoSeat) } else { Ok(()) }
}
