//! Joins the parts of the agent. The only file that knows all of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use prometheus::Registry;
use sluice_placement::annotations::keys;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::Config;
use crate::folders;
use crate::gpu::{self, Gpus};
use crate::library::{Installed, Library, Usage, tidy};
use crate::managers::{self, Board, Launch};
use crate::metrics::http::{self, Pages};
use crate::metrics::{InventorySlot, Readiness, Sources};
use crate::node::events::{self, Events, Reason, about_pod};
use crate::node::{marks, news};
use crate::parts::Parts;
use crate::plugin::{self, Provision};
use crate::pods::desk::Desk;
use crate::pods::{PodView, Refusal, informer};
use crate::selftest::{Tester, Tools};

/// Where kubelet writes down what its plugins answered.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";

/// Old versions of the library take a megabyte each: no hurry.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// What the agent works on: the cluster's API, the node's GPUs, and the program that managers are started from.
pub struct Surroundings {
    /// The API server.
    pub client: Client,
    /// The driver.
    pub gpus: Arc<dyn Gpus>,
    /// The `sluice` program.
    pub program: PathBuf,
    /// Where the HTTP pages are asked for.
    pub listener: TcpListener,
}

/// Serves the node until `stop`.
///
/// # Errors
/// What keeps it from starting, or the part that failed.
pub async fn serve(
    config: Config,
    surroundings: Surroundings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    folders::prepare(&config)?;
    let mut parts = Parts::new(stop);
    let outcome = match start(&config, surroundings, &mut parts).await {
        Ok(()) => parts.wait().await,
        Err(why) => Err(why),
    };
    parts.end().await;
    outcome
}

async fn start(config: &Config, surroundings: Surroundings, parts: &mut Parts) -> anyhow::Result<()> {
    let Surroundings { client, gpus, program, listener } = surroundings;
    let (node, stop) = (config.node.clone(), parts.stop.clone());
    let installed = install(config).await?;
    let (desk, board) = (Desk::default(), Board::default());
    let (sets, assignments) = (desk.sets.subscribe(), desk.assignments.subscribe());
    let inventory = InventorySlot::default();
    let (pods_known, pods) = watch::channel(None);
    let (registered, is_registered) = watch::channel(false);
    let launch = launch(config, program);
    let tester = tests(config, &launch).then(|| Tester::new(tools(config, &launch), Arc::clone(&gpus)));
    let registry = Registry::new();
    let plugin_metrics = plugin::Metrics::register(&registry)?;
    let sources = Sources {
        node: node.clone(),
        inventory: Arc::clone(&inventory),
        pods: pods.clone(),
        assignments: assignments.clone(),
        sets: sets.clone(),
        board: board.clone(),
        launch: launch.clone(),
    };
    let readiness = Readiness {
        inventory: Arc::clone(&inventory),
        plugin: is_registered,
        pods: pods.clone(),
        managers: board.watch(),
    };
    parts.orderly("http", http::serve(listener, Pages { sources, readiness, registry }, stop.clone()));
    parts.endless("pods", informer::follow(client.clone(), node.clone(), pods_known));
    let (tell, notices) = Events::new();
    parts.endless("events", events::send(client.clone(), node.clone(), notices));

    let settings = config.gpu.settings(config.seats_per_gpu);
    let watched = tokio::select! {
        watched = gpu::watch(gpus, settings, stop.clone()) => watched,
        failed = parts.wait() => return failed,
    };
    // Stopped before the driver answered.
    let Some(watched) = watched else { return Ok(()) };
    let gpus = inventory.get_or_init(|| watched.inventory).clone();

    let refusals = tell.clone();
    let refused = move |pod: &PodView, why: &Refusal| {
        refusals.tell(about_pod(pod), Reason::GpuRefused, format!("this pod gets no GPU: {why}"));
    };
    parts.endless("desk", desk.work(pods.clone(), gpus.clone(), refused));
    parts.endless("marks", marks::keep(client, node.clone(), gpus.clone()));
    parts.endless("self-test news", news::tell_of_tests(node.clone(), board.watch(), tell.clone()));
    parts.endless("news", news::tell(node.clone(), gpus.clone(), assignments, sets.clone(), pods, tell));
    let instance = managers::instance_id().context("cannot read a random identity")?;
    let settings = managers::Settings { tester, ..managers::Settings::new(launch, instance) };
    parts
        .orderly("managers", at_ease(managers::supervise(settings, gpus.clone(), sets, board, stop.clone())));
    let settings = plugin_settings(config, &installed);
    parts.orderly("plugin", plugin::run(settings, gpus, plugin_metrics, registered, stop.clone()));
    let library = Library::new(config.library_folder());
    parts.orderly("library", at_ease(tidy(library, installed, usage(config), TIDY_EVERY, stop)));
    info!(node, "the node is served");
    Ok(())
}

/// A part that cannot fail.
async fn at_ease(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}

async fn install(config: &Config) -> anyhow::Result<Installed> {
    let (library, source) = (Library::new(config.library_folder()), config.library.clone());
    let installed = tokio::task::spawn_blocking(move || library.install(&source)).await?;
    installed.context("cannot give pods their library")
}

/// What of the library pods use.
pub(crate) fn usage(config: &Config) -> Usage {
    Usage {
        proc: config.proc.clone(),
        checkpoint: config.plugin_folder.join(CHECKPOINT),
        resource: keys::RESOURCE.to_owned(),
    }
}

fn launch(config: &Config, program: PathBuf) -> Launch {
    let mut arguments = config.managers.arguments();
    arguments.extend_from_slice(&config.manager_arguments);
    if let Some(behaviour) = config.on_manager_loss {
        arguments.extend(["--on-manager-loss".into(), behaviour.word().into()]);
    }
    Launch {
        program,
        sockets: config.socket_folder.clone(),
        controls: config.control_folder(),
        simulated: config.managers.simulated(),
        arguments,
    }
}

/// Whether GPUs are tried: not where an operator has given the managers a verdict.
fn tests(config: &Config, launch: &Launch) -> bool {
    let given = |argument: &OsString| argument.to_string_lossy().starts_with("--self-test");
    config.managers.tests() && !launch.arguments.iter().any(given)
}

fn tools(config: &Config, launch: &Launch) -> Tools {
    Tools {
        program: launch.program.clone(),
        library: config.library.clone(),
        folder: config.self_test_folder(),
        simulated: launch.simulated,
    }
}

fn plugin_settings(config: &Config, installed: &Installed) -> plugin::Settings {
    let provision = Provision::of(installed, &config.socket_folder);
    let provision = match config.on_manager_loss {
        Some(behaviour) => provision.on_manager_loss(behaviour.word()),
        None => provision,
    };
    plugin::Settings { folder: config.plugin_folder.clone(), ..plugin::Settings::new(provision) }
}
