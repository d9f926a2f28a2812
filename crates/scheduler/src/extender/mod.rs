//! The extender of a stock kube-scheduler: filter, prioritize, bind.
//!
//! The kube-scheduler asks it about pods that want `sluice.dev/gpu`, after its own filters. `filter` decides which node
//! and which GPUs, and holds them for the pod; `bind` writes both in one call. What it knows comes from watches of nodes
//! and pods and from its own answers; nothing is stored: after a restart the pods' annotations say what is given.

mod arguments;
mod bind;
mod clock;
mod events;
#[expect(clippy::module_inception, reason = "the extender itself, among the parts of the extender")]
mod extender;
mod filter;
mod http;
mod leadership;
mod lease;
mod metrics;
mod node_watch;
mod objects;
mod placement_state;
mod pod_watch;
mod recheck;
mod run;
#[cfg(test)]
mod tests;
mod watch_loop;
mod wire;

pub use arguments::{Arguments, Lease, StrategyArgument};
pub use run::run;
