//! Kubelet's device plugin: the node's device slots, and what a container with a slot gets.
//!
//! A device slot (`sluice.dev/gpu: 1`) permits one container to use a GPU of this node. It is bound to no GPU: the
//! scheduler chooses the GPU and writes it to the pod's annotation `sluice.dev/assigned-gpu`. So kubelet may hand out
//! slots in any order without contradicting the scheduler, and Allocate does not need to know the pod. Limits never
//! pass through here: a pod-manager gets them from the agent.
//!
//! * [`slots`]: inventory in, list of devices out. Pure.
//! * [`allocation`]: request in, answer out. Pure.
//! * [`run`] serves both to kubelet and keeps the plugin registered across restarts of kubelet and of the agent.
//!
//! # Example
//! ```ignore
//! let installed = Library::new("/var/lib/sluice/lib").install(Path::new("/usr/lib/sluice/libsluice.so"))?;
//! let settings = device_plugin::Settings::new(device_plugin::Provision::of(&installed, "/run/sluice"));
//! let metrics = device_plugin::Metrics::register(&prometheus_registry)?;
//! let (registered, readiness) = tokio::sync::watch::channel(false);
//! device_plugin::run(settings, inventory /* watch::Receiver<NodeInventory> */, metrics, registered, stop).await?;
//! ```

pub mod allocation;
mod error;
mod folder_watch;
mod metrics;
mod registration;
mod server;
mod service;
pub mod slots;
mod supervisor;
mod unix_channel;

pub use allocation::Provision;
pub use error::Error;
pub use metrics::Metrics;
pub use slots::DeviceSlots;
pub use supervisor::{Settings, run};

/// The resource that pods request.
pub const RESOURCE: &str = "sluice.dev/gpu";
/// Kubelet's folder of device plugins; it does not depend on kubelet's `--root-dir`.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// Kubelet's socket in that folder, for registration.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// Our socket in that folder.
pub const SOCKET: &str = "sluice.sock";
