//! From the pods of this node to the clients of each GPU.

pub mod assign;
mod claims;
mod client;
pub mod informer;
mod refusal;
mod suspensions;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assign::Assignments;
pub use refusal::Refusal;
pub use view::PodView;

/// The pods of this node by uid.
pub type Pods = BTreeMap<String, Arc<PodView>>;

/// The pods as they change; `None` until the first complete list.
pub type PodsWatch = tokio::sync::watch::Receiver<Option<Arc<Pods>>>;

/// The assignments as they change; `None` until pods and GPUs are known.
pub type AssignmentsWatch = tokio::sync::watch::Receiver<Option<Arc<Assignments>>>;
