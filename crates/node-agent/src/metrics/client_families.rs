//! The series of each client of each GPU.

use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Registry};
use sluice_placement::annotations::GpuRequest;
use sluice_proto::control::{Class, Client, ClientUsage, SnapshotResponse};

use super::Facts;
use super::families::{opts, ratio, seconds, take, whole};

/// Labels of every series of a client.
const CLIENT: [&str; 5] = ["namespace", "pod", "container", "gpu", "node"];

/// Series of each client of each GPU.
pub(super) struct ClientFamilies {
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
    unhooked: IntGaugeVec,
    unscheduled: IntGaugeVec,
    info: IntGaugeVec,
}

impl ClientFamilies {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let name = |what: &str| format!("sluice_client_{what}");
        let counter = |what, help| take(registry, CounterVec::new(opts(&name(what), help), &CLIENT));
        let int_counter = |what, help| take(registry, IntCounterVec::new(opts(&name(what), help), &CLIENT));
        let ratio = |what, help| take(registry, GaugeVec::new(opts(&name(what), help), &CLIENT));
        let gauge = |what, help| take(registry, IntGaugeVec::new(opts(&name(what), help), &CLIENT));
        let with = |more: &[&'static str]| [&CLIENT, more].concat();
        Ok(Self {
            gpu_seconds: counter("gpu_seconds_total", "GPU time charged to the pod, seconds")?,
            share: ratio(
                "gpu_share_ratio",
                "Share of the GPU's time that the pod used over the ledger's window",
            )?,
            quota: ratio("quota_ratio", "Share of the GPU's time that the pod is guaranteed")?,
            limit: ratio("limit_ratio", "Largest share of the GPU's time that the pod may use")?,
            memory_used: gauge("memory_used_bytes", "GPU memory that the pod has reserved, bytes")?,
            memory_limit: gauge("memory_limit_bytes", "GPU memory that the pod may reserve, bytes")?,
            memory_peak: gauge(
                "memory_peak_bytes",
                "Largest amount of GPU memory that the pod ever had reserved, bytes",
            )?,
            memory_denied: int_counter(
                "memory_denied_total",
                "Memory reservations refused because of the memory limit",
            )?,
            grants: int_counter("grants_total", "Grants of the GPU to the pod")?,
            wait_seconds: counter(
                "wait_seconds_total",
                "Time that the pod's requests waited for a grant, seconds",
            )?,
            bypassed: take(
                registry,
                IntCounterVec::new(
                    opts(
                        &name("bypassed_launches_total"),
                        "Launches that bypassed the hook, as the pod's processes report them",
                    ),
                    &with(&["reason"]),
                ),
            )?,
            processes: gauge("processes", "Attached processes; the label container is where each runs")?,
            unhooked: gauge(
                "adopted_processes",
                "Unhooked processes whose channel groups are scheduled by the manager",
            )?,
            unscheduled: take(
                registry,
                IntGaugeVec::new(
                    opts(
                        &name("unsteered_processes"),
                        "Unhooked processes whose channel groups cannot be scheduled, by reason",
                    ),
                    &with(&["reason"]),
                ),
            )?,
            process_memory: gauge(
                "processes_memory_used_bytes",
                "GPU memory reserved by processes, bytes; the label container is where they run",
            )?,
            info: take(
                registry,
                IntGaugeVec::new(
                    opts(
                        &name("info"),
                        "Always 1; the labels are the pod's class, requested priority and uid",
                    ),
                    &with(&["class", "priority", "pod_uid"]),
                ),
            )?,
        })
    }

    pub(super) fn add(&self, gpu: &str, snapshot: &SnapshotResponse, facts: &Facts) {
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
        self.unhooked.with_label_values(&own).set(i64::from(usage.adopted_processes));
        for (reason, processes) in &usage.unsteered_processes {
            let labels = [own.as_slice(), &[reason.as_str()]].concat();
            self.unscheduled.with_label_values(&labels).set(i64::from(*processes));
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
        let request = pod.and_then(|pod| GpuRequest::from_annotations(&pod.annotations).ok()?);
        let priority = request.map_or("unknown", |request| request.priority.name());
        self.info.with_label_values(&[own.as_slice(), &[class, priority, &client.pod_uid]].concat()).set(1);
    }
}
