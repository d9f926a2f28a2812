//! The extender of a stock kube-scheduler: filter, prioritize, preempt, bind.
//!
//! After its own filters, the kube-scheduler calls the extender for pods that request `sluice.dev/gpu`. `filter`
//! chooses node and GPUs and reserves them; `preempt` corrects the
//! victims of the kube-scheduler GPU by GPU; `bind` writes node and GPUs in one request. The extender's knowledge comes from
//! watches of nodes and pods and from its own answers. Nothing is stored: after a restart the pods' annotations tell
//! which GPUs are assigned.
//!
//! For clusters with an autoscaler, `scale_up` shows it the pods for which no single GPU has room.
//!
//! A call goes through `http`, `filter`, `preempt` or `bind`, and the index in `extender`.

mod arguments;
mod attempts;
mod bind;
mod budget_watch;
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
mod occupants;
mod pod_watch;
mod preempt;
mod recheck;
mod run;
mod scale_up;
#[cfg(test)]
mod tests;
mod watch_loop;
mod wire;

pub use arguments::{Arguments, Lease, StrategyArgument};
pub use run::run;
