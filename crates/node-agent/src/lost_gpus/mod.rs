//! What follows from the loss of a GPU: pods keep a GPU on which no program can work, and nothing else ends them.
//!
//! A GPU is *lost* from a scan that finds that no program can work on it until it is reset, repaired or replaced
//! ([`Fault::ends_work`](crate::gpus::Fault::ends_work)) until it is healthy again. It is also lost if pods of the node have it and the
//! driver has not listed it since the agent started, unless a GPU that the driver cannot identify may be it. If it is lost for longer than
//! the grace period, the policy decides. The grace period begins anew when the agent starts.
//!
//! * `loss`: which GPUs are lost, and their pods. Pure.
//! * `flags`: the policy and the grace period.
//! * `follower`: waits for the end of the grace period and carries the policy out.

mod flags;
mod follower;
mod loss;

pub use flags::{Flags, LostGpuPolicy};
pub use follower::{Inputs, Outputs, follow};
pub use loss::{LostGpu, LostGpus};
