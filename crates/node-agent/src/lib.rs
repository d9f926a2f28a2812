//! The node agent: GPUs, kubelet's device plugin, pods' limits, pod-managers, metrics.
//!
//! Each module answers one question and knows little of the others; `wiring` joins them:
//!
//! ```text
//! gpu ── inventory ─┬─▶ plugin ──▶ kubelet            library ──▶ what pods get mounted
//!                   ├─▶ node ────▶ annotation, labels, events
//!                   └─▶ pods ◀──── API server
//!                        └─ clients ─▶ managers ──▶ one pod-manager per GPU
//! selftest ── verdicts ─────────────▶ managers
//! metrics ◀── all of them
//! ```
#![forbid(unsafe_code)]

mod cleanup;
mod config;
mod folders;
pub mod gpu;
pub mod library;
pub mod managers;
pub mod metrics;
pub mod node;
mod parts;
pub mod plugin;
pub mod pods;
pub mod selftest;
pub mod wiring;

pub use config::{Arguments, Config, ConfigMistakes, OnManagerLoss, Task};

use std::sync::Arc;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves until a signal.
///
/// # Errors
/// What keeps it from starting, or what failed.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let config = Config::read(&arguments, |name| std::env::var(name).ok())?;
    let stop = stopped_by_signals()?;
    let client = kube::Client::try_default().await.context("cannot find the API server")?;
    if let Task::Cleanup { stay } = config.task {
        cleanup::clean(&config, client, wiring::usage(&config), &stop).await?;
        if stay {
            stop.cancelled().await;
        }
        return Ok(());
    }
    raise_descriptor_limit();
    let program = std::env::current_exe().context("cannot find our own program")?;
    let listener = TcpListener::bind(config.http)
        .await
        .with_context(|| format!("cannot listen on --http {}", config.http))?;
    let surroundings = wiring::Surroundings { client, gpus: driver(&config), program, listener };
    wiring::serve(config, surroundings, stop).await
}

/// Managers, watches and pages cost descriptors each, and the soft limit is often for programs that call select().
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(why) = raised {
        tracing::warn!(%why, "cannot raise the limit of descriptors");
    }
}

/// Cancelled by SIGTERM or SIGINT.
fn stopped_by_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let cancel = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to end");
        cancel.cancel();
    });
    Ok(stop)
}

/// The driver behind [`gpu::Gpus`]: loaded when it is first asked, so also a node without one starts.
fn driver(config: &Config) -> Arc<dyn gpu::Gpus> {
    Arc::new(gpu::Driver::new(config.gpu.paths()))
}
