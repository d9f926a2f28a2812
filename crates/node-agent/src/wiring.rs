//! Connects the parts of the agent. The only file that knows all of them.

mod gpu_path;
mod provisioning;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use prometheus::Registry;
use sluice_daemon::ProcessCollector;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::capacity::{self, NodeCapacity};
use crate::config::Config;
use crate::device_plugin::{self, Provision};
use crate::folders;
use crate::gpu_path::GpuPath;
use crate::gpus::{self, GpuDriver};
use crate::injection_proof::{self, Proof};
use crate::instance_sharing;
use crate::kubelet_checkpoint;
use crate::library::{self, Installed, Library, Usage, collect_periodically};
use crate::lost_gpus::{self, LostGpus};
use crate::managers::{self, ManagerCommand, ManagerStatuses, MemoryReports};
use crate::metrics::http::{self, Listeners, Pages};
use crate::metrics::{InventorySlot, Sources};
use crate::node::events::{self, EventQueue, Reason, about_node, about_pod};
use crate::node::{
    WantedTaint, evictions, health_events, node_object, suspended_condition, violation_events,
};
use crate::nri::InForce;
use crate::pods::assign::publish_assignments;
use crate::pods::{PodView, Refusal, informer};
use crate::self_test::{Tester, Tools};
use crate::tasks::AgentTasks;

/// Old versions of the library take a megabyte each, so collecting them is not urgent.
const COLLECT_EVERY: Duration = Duration::from_secs(600);

const SUSPENDED: &str = "this pod gets no GPU time while it has the annotation sluice.dev/suspend; memory that may leave the GPU leaves it";
const RESUMED: &str =
    "this pod gets GPU time again; memory that has left the GPU returns when there is room for it";

/// What the agent works with: the API server, the node's GPUs, and the program that managers are started from.
pub struct Environment {
    /// The API server.
    pub client: Client,
    /// The driver.
    pub gpus: Arc<dyn GpuDriver>,
    /// The `sluice` program.
    pub program: PathBuf,
    /// The listeners of the HTTP pages and of the probes.
    pub listeners: Listeners,
}

/// Serves the node until `stop`.
///
/// # Errors
/// What prevents the start, or which task failed.
pub async fn serve(config: Config, environment: Environment, stop: CancellationToken) -> anyhow::Result<()> {
    folders::prepare(&config)?;
    let mut tasks = AgentTasks::new(stop);
    let outcome = match start(&config, environment, &mut tasks).await {
        Ok(()) => tasks.wait().await,
        Err(why) => Err(why),
    };
    tasks.end().await;
    outcome
}

async fn start(config: &Config, environment: Environment, tasks: &mut AgentTasks) -> anyhow::Result<()> {
    let Environment { client, gpus, program, listeners } = environment;
    let (node, stop) = (config.node.clone(), tasks.stop.clone());
    let (installed, loader_refusal) = install(config).await?;
    let (statuses, inventory) = (ManagerStatuses::default(), InventorySlot::default());
    let gpu_path::Decided { path, note: path_note, prepared } = gpu_path::decide(config, &client).await?;
    let prepared = watch::Sender::new(Arc::new(prepared));
    let (assignments_known, assignments) = watch::channel(None);
    let (pods_known, pods) = watch::channel(None);
    let (registered, is_registered) = watch::channel(false);
    let (injection_known, injection) = watch::channel(InForce::Unknown);
    let (proof_known, proof) = watch::channel(Proof::Open);
    let (lost_known, lost) = watch::channel(LostGpus::new());
    let command = command(config, program);
    let tester = wants_self_tests(config, &command)
        .then(|| Tester::new(self_test_tools(config, &command), Arc::clone(&gpus)));
    let registry = Registry::new();
    registry.register(Box::new(ProcessCollector::new()?))?;
    let plugin_metrics = device_plugin::Metrics::register(&registry)?;
    let sources = Sources {
        node: node.clone(),
        inventory: Arc::clone(&inventory),
        pods: pods.clone(),
        assignments: assignments.clone(),
        statuses: statuses.clone(),
        command: command.clone(),
        registered: is_registered,
        injection: injection.clone(),
        proof: proof.clone(),
        lost: lost.clone(),
        loader_refusal: loader_refusal.clone(),
    };
    let pages = Pages { sources, registry };
    tasks.spawn_graceful("http", infallible(http::serve(listeners, pages, stop.clone())));
    tasks.spawn_abortable("pods", informer::follow(client.clone(), node.clone(), pods_known));
    let (event_queue, pending_events) = EventQueue::new();
    tasks.spawn_abortable("events", events::send(client.clone(), node.clone(), pending_events));
    if let Some(why) = &loader_refusal {
        error!(%why, "the node offers no device slots");
        event_queue.publish(about_node(&node), Reason::LibraryNotLoadable, why);
    }
    if let Some(note) = path_note {
        warn!(note, "pods have claims that the node is not to give any more");
        event_queue.publish(about_node(&node), Reason::ClaimsKept, note);
    }

    let memory = MemoryReports {
        gpus: Arc::clone(&gpus),
        proc: config.host.proc.clone(),
        pods: pods.clone(),
        events: event_queue.clone(),
    };
    let settings = config.host.gpu.settings(config.slots_per_gpu);
    let unavailable = |why: &gpus::driver::DriverUnavailable| {
        let injection = config.injection;
        injection_proof::report_no_driver(&node, injection, &why.to_string(), &proof_known, &event_queue);
    };
    let watched = tokio::select! {
        watched = gpus::watch(gpus, settings, stop.clone(), unavailable) => watched,
        failed = tasks.wait() => return failed,
    };
    // `stop` was cancelled before the driver answered.
    let Some(watched) = watched else { return Ok(()) };
    let found = watched.inventory;
    let (gpus_known, gpus) = watch::channel(instance_sharing::with_proven(&found.borrow(), &statuses.now()));
    let gpus = inventory.get_or_init(|| gpus).clone();
    tasks.spawn_abortable("instances", instance_sharing::publish(gpus_known, found, statuses.watch()));

    let refusals = event_queue.clone();
    let refused = move |pod: &PodView, why: &Refusal| {
        refusals.publish(about_pod(pod), Reason::GpuRefused, format!("this pod gets no GPU: {why}"));
    };
    let suspensions = event_queue.clone();
    let suspended = move |pod: &PodView, is_suspended: bool| {
        let (reason, note) =
            if is_suspended { (Reason::Suspended, SUSPENDED) } else { (Reason::Resumed, RESUMED) };
        suspensions.publish(about_pod(pod), reason, note);
    };
    tasks.spawn_abortable(
        "assignments",
        publish_assignments(
            assignments_known,
            pods.clone(),
            prepared.subscribe(),
            gpus.clone(),
            refused,
            suspended,
        ),
    );
    tasks.spawn_abortable(
        "suspended conditions",
        suspended_condition::publish(client.clone(), command.clone(), pods.clone(), assignments.clone()),
    );
    let (capacity_known, capacity) = watch::channel(NodeCapacity::of(&gpus.borrow(), None));
    tasks.spawn_abortable("capacity", capacity::publish(capacity_known, gpus.clone(), assignments.clone()));
    let (taint_wanted, taint) = watch::channel(WantedTaint::Keep);
    let wanted = node_object::Wanted {
        inventory: gpus.clone(),
        capacity: capacity.clone(),
        taint,
        injection: injection.clone(),
        proof,
        is_for_extender: path == GpuPath::Slots,
    };
    tasks.spawn_abortable("node object", node_object::reconcile(client.clone(), node.clone(), wanted));
    tasks.spawn_abortable(
        "self-test events",
        health_events::publish_self_tests(node.clone(), statuses.watch(), event_queue.clone()),
    );
    let (evictions_wanted, evictions) = mpsc::unbounded_channel();
    tasks.spawn_abortable(
        "violation events",
        violation_events::publish(
            command.clone(),
            statuses.watch(),
            pods.clone(),
            event_queue.clone(),
            evictions_wanted.clone(),
        ),
    );
    let inputs = lost_gpus::Inputs {
        found: watched.lost,
        inventory: gpus.clone(),
        skipped: watched.skipped,
        assignments: assignments.clone(),
        pods: pods.clone(),
        has_device_taints: config.evicts_by_device_taint(path),
    };
    let outputs = lost_gpus::Outputs {
        lost: lost_known,
        taint: taint_wanted,
        evictions: evictions_wanted,
        events: event_queue.clone(),
    };
    tasks.spawn_abortable(
        "lost GPUs",
        lost_gpus::follow(node.clone(), config.host.lost_gpus.clone(), inputs, outputs),
    );
    tasks.spawn_abortable(
        "evictions",
        evictions::serve(client.clone(), pods.clone(), event_queue.clone(), evictions),
    );
    tasks.spawn_abortable(
        "health events",
        health_events::publish_health_changes(
            node.clone(),
            gpus.clone(),
            assignments.clone(),
            pods.clone(),
            event_queue.clone(),
        ),
    );
    let parts = provisioning::Parts {
        client,
        node: node.clone(),
        provision: provision(config, &installed),
        gpus: gpus.clone(),
        lost,
        pods,
        assignments: assignments.clone(),
        event_queue,
        injection_known,
        proof_known,
        registered,
        loader_refusal,
    };
    match path {
        GpuPath::Claims => provisioning::start_claims(config, parts, prepared, tasks),
        GpuPath::Slots => {
            provisioning::start_slots(config, parts, injection, capacity, plugin_metrics, tasks);
        }
        GpuPath::Closed => provisioning::start_nothing(parts, prepared, tasks),
    }
    let instance = managers::instance_id().context("cannot read a random identity")?;
    let settings = managers::Settings { command, instance, tester, memory };
    tasks.spawn_graceful(
        "managers",
        infallible(managers::supervise(settings, gpus, assignments, statuses, stop.clone())),
    );
    let library = Library::new(config.library_folder());
    tasks.spawn_graceful(
        "library",
        infallible(collect_periodically(library, installed, usage(config), COLLECT_EVERY, stop)),
    );
    info!(node, "serving the node");
    Ok(())
}

/// Converts a task that cannot fail into one with a result.
async fn infallible(part: impl Future<Output = ()>) -> anyhow::Result<()> {
    part.await;
    Ok(())
}

/// Installs the library for pods. Also returns why their programs would ignore it, if so.
async fn install(config: &Config) -> anyhow::Result<(Installed, Option<String>)> {
    let (library, source) = (Library::new(config.library_folder()), config.host.library.clone());
    let install = move || {
        let installed = library.install(&source)?;
        let refusal = library::loader_refusal(&installed.folder)?;
        Ok::<_, library::Error>((installed, refusal))
    };
    tokio::task::spawn_blocking(install).await?.context("cannot install the library for pods")
}

/// How to find the library versions that pods use.
pub(crate) fn usage(config: &Config) -> Usage {
    Usage {
        proc: config.host.proc.clone(),
        checkpoint: config.host.plugin_folder.join(kubelet_checkpoint::FILE),
    }
}

fn command(config: &Config, program: PathBuf) -> ManagerCommand {
    let mut arguments = config.host.managers.arguments();
    arguments.extend_from_slice(&config.host.manager_arguments);
    if let Some(behaviour) = &config.on_manager_loss {
        arguments.extend(["--on-manager-loss".into(), behaviour.into()]);
    }
    ManagerCommand {
        program,
        socket_folder: config.host.socket_folder.clone(),
        control_folder: config.control_folder(),
        simulated: config.host.managers.simulated(),
        arguments,
    }
}

/// Whether GPUs are self-tested. They are not if an operator gives the managers a result.
fn wants_self_tests(config: &Config, command: &ManagerCommand) -> bool {
    let given = |argument: &OsString| argument.to_string_lossy().starts_with("--self-test");
    config.host.managers.tests() && !command.arguments.iter().any(given)
}

fn self_test_tools(config: &Config, command: &ManagerCommand) -> Tools {
    Tools {
        program: command.program.clone(),
        library: config.host.library.clone(),
        folder: config.self_test_folder(),
        simulated: command.simulated,
    }
}

/// What containers with a GPU get.
fn provision(config: &Config, installed: &Installed) -> Provision {
    let provision = Provision::of(installed, &config.host.socket_folder);
    match &config.on_manager_loss {
        Some(behaviour) => provision.on_manager_loss(behaviour),
        None => provision,
    }
}
