//! The cluster's half of Sluice: the scheduler extender, which chooses GPUs, and the admission webhook.
//!
//! A pod passes through this crate twice:
//!
//! ```text
//! create ──▶ webhook: annotations ──▶ device slots, visible GPU, scheduler name        (webhook/plan.rs)
//! schedule ─▶ extender: filter reserves GPUs, bind writes the assignment with the node  (extender/filter.rs, extender/bind.rs)
//! ```
//!
//! * [`extender`]: the HTTP extender beside a stock kube-scheduler. Its decisions are those of `sluice-placement`.
//! * [`webhook`]: completes and validates pods. It also renews its own certificate.
//!
//! * `translated`: pods whose annotations the webhook replaces by a claim (DRA), and whose template the extender creates.
//!
//! Both are started by the `sluice` binary: `extender::run` and `webhook::run` serve until their token is cancelled.
//! Neither depends on the share ledger.
#![forbid(unsafe_code)]

pub mod extender;
mod translated;
pub mod webhook;
