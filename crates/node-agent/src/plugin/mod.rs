//! Kubelet's device plugin: the node's seats, and what a container with a seat gets.
//!
//! A seat (`sluice.dev/gpu: 1`) is the right of one container to be on this node with a GPU. It belongs to no GPU: which one
//! the container sees, the scheduler has decided and written to the pod's annotation `sluice.dev/assigned-gpu`. So
//! kubelet may hand out seats as it likes and cannot contradict the scheduler, and Allocate needs not know for which pod it
//! is asked. Limits never pass through here: a pod-manager gets them from the agent.
//!
//! * [`seats`]: inventory in, list of devices out. Pure.
//! * [`allocation`]: request in, answer out. Pure.
//! * [`run`] serves both to kubelet and keeps the plugin registered, over restarts of kubelet and of the agent.
//! * [`pod_resources`] asks kubelet which pods hold seats; the agent itself does not need it, nor has it that socket mounted.
//!
//! # For those who build on it
//! ```ignore
//! let installed = Library::new("/var/lib/sluice/lib").install(Path::new("/usr/lib/sluice/libsluice.so"))?;
//! let settings = plugin::Settings::new(plugin::Provision::of(&installed, "/run/sluice"));
//! let metrics = plugin::Metrics::register(&prometheus_registry)?;
//! let (registered, readiness) = tokio::sync::watch::channel(false);
//! plugin::run(settings, inventory /* watch::Receiver<NodeInventory> */, metrics, registered, stop).await?;
//! ```

pub mod allocation;
mod backoff;
mod error;
mod folder;
mod keeper;
mod metrics;
pub mod pod_resources;
mod registration;
pub mod seats;
mod service;
mod serving;
mod unix_channel;

pub use allocation::Provision;
pub use error::Error;
pub use keeper::{Settings, run};
pub use metrics::Metrics;
pub use seats::Seats;

/// The resource that pods ask for.
pub const RESOURCE: &str = "sluice.dev/gpu";
/// Kubelet's folder of device plugins, the same whatever its `--root-dir`.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// Kubelet's socket in that folder, for registration.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// Ours.
pub const SOCKET: &str = "sluice.sock";
