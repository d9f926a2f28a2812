//! What the agent publishes about its node in the cluster.

pub mod events;
pub mod health_events;
pub mod node_metadata;
