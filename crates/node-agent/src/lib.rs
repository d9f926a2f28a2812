//! The node agent: GPU inventory and health, kubelet's device plugin, the clients of each GPU, pod-managers, metrics.
//!
//! Each module has one concern and depends on few others; `wiring` connects them:
//!
//! ```text
//! gpus ── inventory ─┬─▶ capacity ─┬─▶ device_plugin ──▶ kubelet     library ──▶ what pods get mounted
//!                    ├─────────────┴─▶ node ───────────▶ annotation, labels, amounts, events
//!                    ├─▶ lost_gpus ──────▶ node: taint, evictions
//!                    └─▶ pods ◀─────────── API server
//!                         ├─ clients ─▶ managers ──▶ one pod-manager per GPU
//!                         └─ GPUs ────▶ nri ───────▶ container runtime: what a new container gets
//! dra ◀────────────── kubelet: prepared_claims ──▶ pods; in place of device_plugin on nodes with its label
//! self_test ── results ─────────────────▶ managers
//! metrics ◀── all of them
//! ```
//!
//! The binary calls [`run`] with the parsed [`Arguments`] and a token that a signal cancels. Tests call [`wiring::serve`] with a [`wiring::Environment`] of their own: a
//! fake driver and a client of a fake API server.
#![forbid(unsafe_code)]

// The fake driver of the tests names this crate as the integration tests do.
#[cfg(test)]
extern crate self as sluice_node_agent;

pub mod capacity;
mod cleanup;
mod config;
pub mod device_plugin;
mod dra;
mod folders;
mod gpu_path;
pub mod gpus;
pub mod injection_proof;
mod kubelet_checkpoint;
pub mod library;
pub mod lost_gpus;
pub mod managers;
pub mod metrics;
pub mod node;
pub mod nri;
pub mod pods;
pub mod prepared_claims;
mod profiles;
pub mod self_test;
mod tasks;
mod watch_backoff;
pub mod wiring;

pub use config::{Arguments, Config, ConfigMistakes, Task};

use std::sync::Arc;

use anyhow::Context;
use metrics::http::Listeners;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves until `stop`.
///
/// # Errors
/// What prevents the start, or which task failed.
pub async fn run(arguments: Arguments, stop: CancellationToken) -> anyhow::Result<()> {
    let mut arguments = arguments;
    let variable = |name: &str| std::env::var(name).ok();
    let mut config = Config::read(&arguments, variable)?;
    if config.task == Task::OwnDriver {
        let uid = std::env::var("POD_UID").context("POD_UID, the uid of this pod, is not set")?;
        return nri::give_own_driver(config.nri_places(), uid, config.injection, config.health, stop).await;
    }
    let client = kube::Client::try_default().await.context("cannot find the API server")?;
    if let (Task::Serve, Some(file)) = (config.task, arguments.profiles.clone()) {
        let labels =
            node::labels(client.clone(), &config.node).await.context("cannot read this node's labels")?;
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let profiles = profiles::read(&text).with_context(|| file.display().to_string())?;
        if let Some(profile) = profiles.iter().find(|profile| profile.is_for(&labels)) {
            tracing::info!(profile = profile.name, "using the settings of a profile");
            profile.apply(&mut arguments).map_err(anyhow::Error::msg)?;
            config = Config::read(&arguments, variable)?;
        }
    }
    if let Task::Cleanup { stay } = config.task {
        cleanup::clean(&config, client, wiring::usage(&config), &stop).await?;
        if stay {
            stop.cancelled().await;
        }
        return Ok(());
    }
    raise_descriptor_limit();
    let program = std::env::current_exe().context("cannot find the program of this process")?;
    let listeners = Listeners {
        pages: listener_of("http", config.http)?,
        health: listener_of("health", config.health)?,
        state: listener_of("state-page", config.state_page)?,
    };
    // Loaded at the first use, so the agent also starts on a node without a driver.
    let gpus = Arc::new(gpus::NvmlDriver::new(config.host.gpu.paths()));
    let client = serving_client().await?;
    let environment = wiring::Environment { client, gpus, program, listeners };
    wiring::serve(config, environment, stop).await
}

/// A listener at the address of a flag.
fn listener_of(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = sluice_daemon::listener::listen(address).and_then(TcpListener::from_std);
    listener.with_context(|| format!("--{flag}"))
}

/// The client of the serving agent. Each of its parts repeats its requests by itself, and a refused eviction (429) is reported at once: the
/// client library would repeat it for minutes.
async fn serving_client() -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::infer().await.context("cannot find the API server")?;
    config.default_retry = false;
    kube::Client::try_from(config).context("cannot create a client of the API server")
}

/// Managers, watches and HTTP pages need descriptors, and the soft limit is often the 1024 of programs that call
/// select().
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(why) = raised {
        tracing::warn!(%why, "cannot raise the limit of descriptors");
    }
}
