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
//! Both are started by the `sluice` binary: `extender::run(arguments)` and `webhook::run(arguments)` serve until a signal.
//! Neither depends on the share ledger.
#![forbid(unsafe_code)]

pub mod extender;
pub mod webhook;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancelled by SIGTERM or SIGINT.
fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}
