//! What the agent publishes about its node in the cluster.
//!
//! * [`node_metadata`]: the inventory as an annotation and labels of the node.
//! * [`events`]: events on pods and on the node.
//! * [`health_events`]: which events follow from a change of the inventory.

pub mod events;
pub mod health_events;
pub mod node_metadata;
