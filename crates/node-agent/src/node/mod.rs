//! What the agent says about its node to the rest of the cluster.
//!
//! * [`marks`]: the inventory as an annotation and labels of the node, kept there.
//! * [`events`]: events on pods and on the node.
//! * [`news`]: which events follow from a change of the inventory.

pub mod events;
pub mod marks;
pub mod news;
