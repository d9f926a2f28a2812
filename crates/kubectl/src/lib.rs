//! The commands of `kubectl sluice`: which GPUs the cluster has, which pods use them, and why a pod waits.
//!
//! ```text
//! I/O                                     pure                                  output
//! cluster.rs       (Kubernetes API) ─┬─▶ cluster_state.rs ─▶ nodes.rs        ─┬─▶ text.rs, JSON
//!                                    │                    ─▶ explain.rs      ─┤
//! metrics_pages.rs (/metrics)       ─┴─▶ metrics_text.rs  ─▶ top.rs          ─┴─▶ terminal.rs (live)
//! ```
//!
//! Decisions about room are those of `sluice-placement`, on the same annotations that the scheduler extender reads. The models are
//! functions from these facts to rows; their fields are the JSON output (docs/operators/kubectl.md).
#![forbid(unsafe_code)]

mod arguments;
mod claims;
mod cluster;
mod cluster_state;
mod explain;
mod metrics_pages;
mod metrics_text;
mod nodes;
mod output;
mod run;
mod source;
mod terminal;
#[cfg(test)]
mod test_cluster;
mod text;
mod top;

pub use arguments::{Command, Plugin};
