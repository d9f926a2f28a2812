//! Injection by NRI: the container runtime asks this plugin what each new container gets.
//!
//! Of a pod with a GPU, the chosen container gets the CDI devices of the assigned GPUs, and what kubelet's Allocate did not
//! bring: library, preload file, socket folder, environment. Other containers get nothing. Which GPU that is comes from the
//! agent's own watch of the API server, never from the pod's environment.
//!
//! * `wire`: bytes to messages. Pure.
//! * `session`: one connection, from the registration to its end. `supervisor` connects again, for ever.
//! * `cdi`: the devices that the node's CDI specifications name.
//! * `adjustment`: what a container lacks. Pure.
//! * `tenants`: the plugin for pods. `own_driver`: the plugin that gives the agent itself the driver.
//! * `in_force`: whether containers get their GPUs by NRI or by NVIDIA's container runtime.

mod adjustment;
mod cdi;
mod in_force;
mod own_driver;
mod session;
mod supervisor;
mod tenants;
mod wire;

use std::path::PathBuf;

pub use cdi::CdiFolders;
pub use in_force::{InForce, Injection, Settings, follow};
pub(crate) use own_driver::give_own_driver;
pub(crate) use tenants::{TenantPlugin, serve_tenants};

/// The variable from which NVIDIA's container runtime takes the GPUs of a container.
pub(crate) const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Its value for no GPU. NVIDIA's CDI specifications set it, too, so that the runtime adds nothing to what CDI brings.
pub(crate) const VOID: &str = "void";

/// How the runtime's side of NRI is reached; `Err`: why it is not.
pub(crate) type Registration = Option<Result<String, String>>;

/// The runtime's socket, and where CDI specifications are.
#[derive(Debug, Clone)]
pub struct Places {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// The folders with CDI specifications.
    pub cdi: CdiFolders,
}
