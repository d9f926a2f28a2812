//! The extender of a stock kube-scheduler: filter, prioritize, bind.
//!
//! The kube-scheduler asks it about pods that want `sluice.dev/gpu`, after its own filters. `filter` decides which node
//! and which GPUs, and holds them for the pod; `bind` writes both in one call. What it knows comes from watches of nodes
//! and pods and from its own answers; nothing is stored: after a restart the pods' annotations say what is given.

mod arguments;
mod bind;
mod clock;
mod ending;
mod events;
#[expect(clippy::module_inception, reason = "the extender itself, among the parts of the extender")]
mod extender;
mod feed;
mod filter;
mod http;
mod lease;
mod left;
mod look;
mod metrics;
mod nodes;
mod objects;
mod pods;
mod role;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod wire;

pub use arguments::{Arguments, Laying, Lease};
pub use run::run;
