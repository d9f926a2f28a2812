//! Whether containers of this node are known to get their GPUs by the path in force. A container runtime may ignore what it is asked for
//! without an error: a hardened one ignores NVIDIA_VISIBLE_DEVICES in unprivileged containers.
//!
//! Two kinds of containers show it:
//!
//! * The agent's own container, which asks for all GPUs as an unprivileged container. If NVML answers in it, the path by which it got the
//!   driver works. If NVML cannot be loaded, the node offers no device slots.
//! * The containers of pods with a GPU that are created while the path is in force: the driver's library is mounted into them, and their
//!   device nodes exist. The latest container counts.
//!
//! * `proof`: the outcomes. Pure.
//! * `pod_containers`: looks at the processes of containers in /proc.
//! * `follower`: publishes the outcome.

mod follower;
mod pod_containers;
mod proof;

pub use follower::{Inputs, follow, report_no_driver};
pub(crate) use proof::OWN_DRIVER;
pub use proof::{OwnPath, Proof};
