//! Kubelet's device plugin: the node's device slots, and what a container with a slot gets.
//!
//! A device slot (`sluice.dev/gpu: 1`) permits one container to use a GPU of this node. It is bound to no GPU: the
//! scheduler chooses the GPU and writes it to the pod's annotation `sluice.dev/assigned-gpu`. So kubelet may hand out
//! slots in any order without contradicting the scheduler, and Allocate does not need to know the pod. Limits never
//! pass through here: a pod-manager gets them from the agent.
//!
//! * `held_slots`: which pods hold which slots, from kubelet's checkpoint.
//! * `slots`: capacity and held slots in, list of devices out; request in, answer out. Pure.
//! * [`run`] serves both to kubelet and keeps the plugin registered across restarts of kubelet and of the agent.

mod error;
mod folder_watch;
mod held_slots;
mod registration;
mod server;
mod service;
mod slots;
mod supervisor;

pub use error::Error;
pub use service::Metrics;
pub(crate) use slots::LOADER_FILE;
pub use slots::Provision;
pub use supervisor::{Settings, run};

/// Kubelet's socket in its folder of device plugins, for registration.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// Our socket in that folder.
pub const SOCKET: &str = "sluice.sock";
