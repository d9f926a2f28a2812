//! Which GPU a pod gets: nodes and their GPUs, what is given of them, and the choice among them.
//!
//! Pure: integers only (thousandths of a GPU, bytes), no clock (deadlines are numbers on the caller's clock), no
//! Kubernetes types, so that another scheduler front end can stand on it. The public question is [`Index::reserve`]:
//! where does this pod go; its answer is held for the pod until it is bound, or its deadline passes.
//!
//! The choice looks at every GPU of every candidate node. The cost is that of the candidates the caller names, not of
//! the cluster: a stock scheduler offers at most a few hundred, and each is eight comparisons of integers.

#![forbid(unsafe_code)]

pub mod annotations;
mod claim;
mod demand;
mod index;
pub mod inventory;
mod node;
mod offer;
mod rank;
mod reasons;
mod slot;
mod text;
mod whole;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Hold};
pub use demand::{Demand, Take};
pub use index::Index;
pub use node::GpuUse;
pub use offer::{CannotBind, Choice, Offer};
pub use rank::Strategy;
pub use reasons::{GpuName, NodeReasons, Reason};
pub use text::{memory_asked, memory_free, share};
