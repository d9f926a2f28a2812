//! The Prometheus series, built from the facts of one moment.
//!
//! Counters of a client start at 0 with its manager's process. Prometheus handles such resets as it does for any
//! restarted program.

use prometheus::core::{Collector, GenericGaugeVec};
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use sluice_core::share::WHOLE_PPM;
use sluice_placement::inventory::Gpu;
use sluice_proto::control::{Class, Client, ClientUsage, SnapshotResponse};

use super::Facts;
use super::channel_groups;
use crate::managers::ManagerState;

/// Labels of every series of a client.
const CLIENT: [&str; 5] = ["namespace", "pod", "container", "gpu", "node"];
const GPU: [&str; 2] = ["gpu", "node"];

/// Registers all series with an empty registry.
///
/// # Errors
/// A name is already taken.
pub fn register(facts: &Facts, registry: &Registry) -> prometheus::Result<()> {
    let clients = Clients::new(registry)?;
    let gpus = Gpus::new(registry)?;
    let build =
        IntGaugeVec::new(opts("sluice_build_info", "The version that runs"), &["version", "component"])?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), "node-agent"]).set(1);
    registry.register(Box::new(build))?;
    let refused = IntGaugeVec::new(
        opts(
            "sluice_refused_pods",
            "Pods of this node that ask for a GPU and get none; their events say why",
        ),
        &["node"],
    )?;
    refused.with_label_values(&[&facts.node]).set(whole(facts.assignments.refused.len()));
    registry.register(Box::new(refused))?;
    for gpu in facts.inventory.iter().flat_map(|inventory| &inventory.gpus) {
        gpus.add(gpu, facts);
    }
    for (gpu, snapshot) in &facts.snapshots {
        if let Ok(snapshot) = snapshot {
            clients.add(gpu, snapshot, facts);
        }
    }
    Ok(())
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help)
}

pub(super) fn take<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let made = made?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// Series of each client of each GPU.
struct Clients {
    gpu_seconds: CounterVec,
    share: GaugeVec,
    quota: GaugeVec,
    limit: GaugeVec,
    memory_used: IntGaugeVec,
    memory_limit: IntGaugeVec,
    memory_peak: IntGaugeVec,
    memory_denied: IntCounterVec,
    grants: IntCounterVec,
    wait_seconds: CounterVec,
    bypassed: IntCounterVec,
    processes: IntGaugeVec,
    process_memory: IntGaugeVec,
    adopted: IntGaugeVec,
    unsteered: IntGaugeVec,
    info: IntGaugeVec,
}

impl Clients {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let name = |what: &str| format!("sluice_client_{what}");
        let counter = |what, help| take(registry, CounterVec::new(opts(&name(what), help), &CLIENT));
        let int_counter = |what, help| take(registry, IntCounterVec::new(opts(&name(what), help), &CLIENT));
        let ratio = |what, help| take(registry, GaugeVec::new(opts(&name(what), help), &CLIENT));
        let gauge = |what, help| take(registry, IntGaugeVec::new(opts(&name(what), help), &CLIENT));
        let with = |more: &[&'static str]| [&CLIENT, more].concat();
        Ok(Self {
            gpu_seconds: counter("gpu_seconds_total", "GPU time charged to the pod")?,
            share: ratio("gpu_share_ratio", "Share of the GPU's time that the pod had over the last window")?,
            quota: ratio("quota_ratio", "Share of the GPU's time that the pod is guaranteed")?,
            limit: ratio("limit_ratio", "Largest share of the GPU's time that the pod may have")?,
            memory_used: gauge("memory_used_bytes", "GPU memory that the pod has reserved")?,
            memory_limit: gauge("memory_limit_bytes", "GPU memory that the pod may reserve")?,
            memory_peak: gauge("memory_peak_bytes", "Most GPU memory that the pod ever had reserved")?,
            memory_denied: int_counter("memory_denied_total", "Reservations refused for the memory limit")?,
            grants: int_counter("grants_total", "Times that the pod was granted the GPU")?,
            wait_seconds: counter("wait_seconds_total", "Time that the pod's requests waited for the GPU")?,
            bypassed: take(
                registry,
                IntCounterVec::new(
                    opts(
                        &name("bypassed_launches_total"),
                        "Launches that the hook did not govern, as the pod's processes say",
                    ),
                    &with(&["reason"]),
                ),
            )?,
            processes: gauge("processes", "Processes attached; the container is the one that each runs in")?,
            adopted: gauge(
                "adopted_processes",
                "Processes that run without the hook, and whose channel groups are steered all the same",
            )?,
            unsteered: take(
                registry,
                IntGaugeVec::new(
                    opts(
                        &name("unsteered_processes"),
                        "Processes that run without the hook and cannot be steered, by why",
                    ),
                    &with(&["reason"]),
                ),
            )?,
            process_memory: gauge(
                "processes_memory_used_bytes",
                "GPU memory reserved by processes; the container is the one that they run in",
            )?,
            info: take(
                registry,
                IntGaugeVec::new(
                    opts(&name("info"), "The pod's class, the priority that it asked for, and its uid"),
                    &with(&["class", "priority", "pod_uid"]),
                ),
            )?,
        })
    }

    fn add(&self, gpu: &str, snapshot: &SnapshotResponse, facts: &Facts) {
        for usage in &snapshot.clients {
            // A client that was removed has no limits any more, and its processes are about to be disconnected.
            if let Some(client) = usage.client.as_ref().filter(|_| !usage.left_out) {
                self.add_client(gpu, client, usage, facts);
            }
        }
    }

    fn add_client(&self, gpu: &str, client: &Client, usage: &ClientUsage, facts: &Facts) {
        let pod = facts.pods.get(&client.pod_uid);
        let container = pod.map_or("", |pod| pod.container.as_str());
        let (namespace, name) = (client.namespace.as_str(), client.pod.as_str());
        let own = [namespace, name, container, gpu, facts.node.as_str()];
        self.gpu_seconds.with_label_values(&own).inc_by(seconds(usage.gpu_time_ns));
        self.share.with_label_values(&own).set(ratio(usage.share_ppm));
        self.quota.with_label_values(&own).set(ratio(client.quota_ppm));
        self.limit.with_label_values(&own).set(ratio(client.limit_ppm));
        self.memory_used.with_label_values(&own).set(whole(usage.memory_used_bytes));
        self.memory_limit.with_label_values(&own).set(whole(client.memory_bytes));
        self.memory_peak.with_label_values(&own).set(whole(usage.memory_peak_bytes));
        self.memory_denied.with_label_values(&own).inc_by(usage.memory_denied);
        self.grants.with_label_values(&own).inc_by(usage.grants);
        self.wait_seconds.with_label_values(&own).inc_by(seconds(usage.wait_ns));
        for (reason, launches) in &usage.bypassed {
            let labels = [own.as_slice(), &[reason.as_str()]].concat();
            self.bypassed.with_label_values(&labels).inc_by(*launches);
        }
        self.adopted.with_label_values(&own).set(i64::from(usage.adopted_processes));
        for (reason, processes) in &usage.unsteered_processes {
            let labels = [own.as_slice(), &[reason.as_str()]].concat();
            self.unsteered.with_label_values(&labels).set(i64::from(*processes));
        }
        for process in &usage.processes {
            let container = pod.and_then(|pod| pod.container_names.get(&process.container_id));
            let labels = [namespace, name, container.map_or("", String::as_str), gpu, &facts.node];
            self.processes.with_label_values(&labels).inc();
            self.process_memory.with_label_values(&labels).add(whole(process.memory_used_bytes));
        }
        let class = match client.class() {
            Class::BestEffort => "best-effort",
            Class::LatencyCritical => "latency-critical",
            Class::Unspecified => "unknown",
        };
        let request = pod.and_then(|pod| {
            sluice_placement::annotations::GpuRequest::from_annotations(&pod.annotations).ok()?
        });
        let priority = request.map_or("unknown", |request| request.priority.name());
        self.info.with_label_values(&[own.as_slice(), &[class, priority, &client.pod_uid]].concat()).set(1);
    }
}

/// Series of each GPU.
struct Gpus {
    info: IntGaugeVec,
    healthy: IntGaugeVec,
    memory: IntGaugeVec,
    quota: GaugeVec,
    memory_assigned: IntGaugeVec,
    clients: IntGaugeVec,
    up: IntGaugeVec,
    restarts: IntCounterVec,
    self_test: IntGaugeVec,
    refused: IntCounterVec,
    steering: channel_groups::Series,
}

impl Gpus {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge =
            |name: &str, help, labels: &[&str]| take(registry, IntGaugeVec::new(opts(name, help), labels));
        let counter =
            |name: &str, help, labels: &[&str]| take(registry, IntCounterVec::new(opts(name, help), labels));
        let quota =
            opts("sluice_gpu_quota_assigned_ratio", "Share of the GPU's time that is promised to pods");
        let quota: GenericGaugeVec<_> = take(registry, GaugeVec::new(quota, &GPU))?;
        Ok(Self {
            info: gauge(
                "sluice_gpu_info",
                "A GPU of this node",
                &["gpu", "node", "model", "index", "pci", "numa"],
            )?,
            healthy: gauge("sluice_gpu_healthy", "Whether the GPU takes new pods", &GPU)?,
            memory: gauge("sluice_gpu_memory_bytes", "Memory that the GPU has", &GPU)?,
            quota,
            memory_assigned: gauge(
                "sluice_gpu_memory_assigned_bytes",
                "Memory that is promised to pods",
                &GPU,
            )?,
            clients: gauge("sluice_gpu_clients", "Pods that have a part of the GPU", &GPU)?,
            up: gauge(
                "sluice_manager_up",
                "Whether the GPU's pod-manager has the clients that it is to have",
                &GPU,
            )?,
            restarts: counter(
                "sluice_manager_restarts_total",
                "Times that the pod-manager was started again",
                &GPU,
            )?,
            self_test: gauge(
                "sluice_gpu_self_test",
                "What the self-test of the GPU's controls came to: 1 for one of the outcomes",
                &["gpu", "node", "outcome"],
            )?,
            refused: counter(
                "sluice_manager_refused_connections_total",
                "Connections that the pod-manager refused",
                &["gpu", "node", "reason"],
            )?,
            steering: channel_groups::Series::new(registry)?,
        })
    }

    fn add(&self, gpu: &Gpu, facts: &Facts) {
        let own = [gpu.uuid.as_str(), facts.node.as_str()];
        let numa = gpu.numa.map(|numa| numa.to_string()).unwrap_or_default();
        let index = gpu.index.to_string();
        let info =
            [own.as_slice(), &[gpu.model.as_str(), index.as_str(), gpu.pci.as_str(), numa.as_str()]].concat();
        self.info.with_label_values(&info).set(1);
        self.healthy.with_label_values(&own).set(i64::from(gpu.healthy));
        self.memory.with_label_values(&own).set(whole(gpu.memory_bytes));
        let clients = facts.assignments.sets.get(&gpu.uuid).map(Vec::as_slice).unwrap_or_default();
        self.quota.with_label_values(&own).set(ratio(clients.iter().map(|client| client.quota_ppm).sum()));
        self.memory_assigned
            .with_label_values(&own)
            .set(whole(clients.iter().map(|client| client.memory_bytes).sum::<u64>()));
        self.clients.with_label_values(&own).set(whole(clients.len()));
        let manager = facts.managers.get(&gpu.uuid);
        let answers = facts.snapshots.get(&gpu.uuid).is_some_and(Result::is_ok);
        let serves = manager.is_some_and(|manager| manager.state == ManagerState::Serving);
        self.up.with_label_values(&own).set(i64::from(answers && serves));
        self.restarts.with_label_values(&own).inc_by(manager.map_or(0, |manager| manager.restarts));
        if let Some(manager) = manager {
            let outcome = manager.self_test.name();
            self.self_test.with_label_values(&[own.as_slice(), &[outcome]].concat()).set(1);
        }
        if let Some(Ok(snapshot)) = facts.snapshots.get(&gpu.uuid) {
            for (reason, count) in &snapshot.refused {
                self.refused.with_label_values(&[own.as_slice(), &[reason.as_str()]].concat()).inc_by(*count);
            }
            if let Some(said) = &snapshot.steering {
                self.steering.add(own, said);
            }
        }
    }
}

fn ratio(ppm: u32) -> f64 {
    f64::from(ppm) / f64::from(WHOLE_PPM)
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// Value of a gauge; a number that is too large is shown as the largest.
fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
