//! What the agent publishes about its node in the cluster.

pub mod events;
pub mod health_events;
mod node_metadata;
pub mod node_object;
mod node_status;
mod node_writer;
