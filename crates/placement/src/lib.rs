//! Placement of pods on GPUs: annotations, inventory, reservations and the choice among nodes.
//!
//! Pure: integers only (parts per million of a GPU, bytes), no clock (deadlines are numbers on the caller's clock), no
//! Kubernetes types, so that another scheduler can use it.
//!
//! * [`annotations::GpuRequest`] is a pod's request, read from its annotations. Its [`Demand`] is the part that placement
//!   counts.
//! * [`inventory::NodeInventory`] describes the GPUs of a node.
//! * [`Index::reserve`] finds the best GPUs for a pod and reserves them until the pod is bound or the deadline passes.
//! * [`Index::victims`] chooses the pods to evict from a node for a pod of a higher PriorityClass.
//!   [`Index::propose_nominations`] keeps their room for it.
//!
//! The choice considers every GPU of every candidate node. The cost grows with the candidates of the call, not with the
//! cluster: a stock scheduler offers at most a few hundred, and each costs eight comparisons of integers.
//!
//! ```
//! use sluice_placement::annotations::Amount;
//! use sluice_placement::inventory::{Gpu, NodeInventory};
//! use sluice_placement::{Demand, Index, PlacementOutcome, Strategy};
//! use sluice_units::Share;
//!
//! let gpu = Gpu {
//!     uuid: "GPU-a".into(),
//!     index: 0,
//!     model: "NVIDIA H200".into(),
//!     memory_bytes: 141 << 30,
//!     memory_total_bytes: None,
//!     host_memory_bytes: 0,
//!     numa: None,
//!     pci: "0000:01:00.0".into(),
//!     nvlink: Vec::new(),
//!     mig: None,
//!     healthy: true,
//!     unhealthy_reason: None,
//! };
//! let mut index = Index::new(Strategy::Binpack);
//! index.set_node("node-a", &NodeInventory::new(10, vec![gpu]));
//! let demand = Demand::new(Amount::Share(Share::from_fraction(0.3)?), None);
//! let placed = index.reserve("pod-uid", &demand, ["node-a"].into_iter(), 1, 1_000);
//! assert!(matches!(placed, PlacementOutcome::Reserved(places) if &*places[0].node == "node-a"));
//! # Ok::<(), sluice_units::ShareError>(())
//! ```

#![forbid(unsafe_code)]

pub mod annotations;
pub mod countable;
mod demand;
mod gangs;
mod gpu_state;
mod index;
pub mod inventory;
mod memory_use;
mod node;
mod outcome;
mod preemption;
mod ranking;
mod reasons;
pub mod sandboxes;
pub mod share_config;

#[cfg(test)]
mod tests;

pub use countable::Countable;
pub use demand::Demand;
pub use index::{FreeTime, Index, ProposedNode};
pub use memory_use::{MemoryUse, on_host};
pub use node::GpuReservations;
pub use outcome::{CannotBind, Placement, PlacementOutcome, Reservation, ReservationState};
pub use preemption::{Cost, Evictable, Preemptor, Victims};
pub use ranking::Strategy;
pub use reasons::{GpuName, NodeReasons, Reason, format_share};
