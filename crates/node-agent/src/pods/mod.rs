//! From the pods of this node to the clients of each GPU.
//!
//! * [`view`]: what the agent needs to know of a pod.
//! * [`informer`]: the pods, from a watch. The last known pods remain while the API server is unavailable.
//! * [`assign`]: the rule: pods and GPUs in, clients of each GPU and refusals out. Pure.
//! * [`assigner`]: applies the rule whenever pods or GPUs change.

pub mod assign;
pub mod assigner;
pub mod informer;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assign::{Assignments, Refusal};
pub use view::PodView;

/// The pods of this node by uid.
pub type Pods = BTreeMap<String, Arc<PodView>>;

/// The pods as they change; `None` until the first complete list.
pub type PodsWatch = tokio::sync::watch::Receiver<Option<Arc<Pods>>>;
