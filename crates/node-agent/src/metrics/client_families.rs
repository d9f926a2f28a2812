//! The series of one client of a GPU.

use sluice_placement::annotations::GpuRequest;
use sluice_proto::control::{Class, Client, ClientUsage};

use super::families::{Families, ratio, seconds};
use super::{Facts, latency_families};

pub(super) fn add(
    families: &mut Families,
    gpu: &str,
    client: &Client,
    usage: &ClientUsage,
    facts: &Facts,
) -> prometheus::Result<()> {
    let pod = facts.pods.get(&client.pod_uid);
    let labels_in = |container| {
        let pod = [("namespace", client.namespace.as_str()), ("pod", client.pod.as_str())];
        [pod[0], pod[1], ("container", container), ("gpu", gpu), ("node", facts.node.as_str())]
    };
    let own = labels_in(pod.map_or("", |pod| pod.container.as_str()));
    families.add_counters(
        &own,
        &[
            (
                "sluice_client_gpu_seconds_total",
                "GPU time charged to the pod, seconds",
                seconds(usage.gpu_time_ns),
            ),
            (
                "sluice_client_memory_denied_total",
                "Memory reservations refused because of the memory limit",
                usage.memory_denied as f64,
            ),
            ("sluice_client_grants_total", "Grants of the GPU to the pod", usage.grants as f64),
            (
                "sluice_client_wait_seconds_total",
                "Time that the pod's requests waited for a grant, seconds",
                seconds(usage.wait_ns),
            ),
            (
                "sluice_client_delayed_seconds_total",
                "Time that requests of a latency-critical pod waited because it had used its limit, or more than its quota while another pod lagged, seconds",
                seconds(usage.delayed_ns),
            ),
            (
                "sluice_client_memory_moved_bytes_total",
                "GPU memory of the pod that has left the GPU or returned, bytes",
                usage.memory_moved_bytes as f64,
            ),
            (
                "sluice_client_memory_waited_seconds_total",
                "Time in which a process of the pod waited for memory that had left the GPU, or for room, seconds",
                usage.memory_waited_seconds,
            ),
            (
                "sluice_client_energy_joules_total",
                "Energy that the GPU drew beyond that of an idle one, attributed by execution time, joules",
                usage.energy_joules,
            ),
            (
                "sluice_client_hold_and_wait_seconds_total",
                "Time in which the pod held the GPU and executed nothing while another pod waited, seconds",
                seconds(usage.hold_and_wait_ns),
            ),
        ],
    )?;
    families.set_gauges(
        &own,
        &[
            (
                "sluice_client_gpu_share_ratio",
                "Share of the GPU's time that the pod used over the ledger's window",
                ratio(usage.share_ppm),
            ),
            (
                "sluice_client_quota_ratio",
                "Share of the GPU's time that the pod is guaranteed",
                ratio(client.quota_ppm),
            ),
            (
                "sluice_client_limit_ratio",
                "Largest share of the GPU's time that the pod may use",
                ratio(client.limit_ppm),
            ),
            (
                "sluice_client_memory_used_bytes",
                "GPU memory that the pod has reserved, bytes",
                usage.memory_used_bytes as f64,
            ),
            (
                "sluice_client_memory_overhead_bytes",
                "GPU memory of the pod that the driver reports beyond the reserved one, bytes",
                usage.memory_overhead_bytes as f64,
            ),
            (
                "sluice_client_memory_limit_bytes",
                "GPU memory that the pod may reserve, bytes",
                client.memory_bytes as f64,
            ),
            (
                "sluice_client_memory_resident_bytes",
                "Memory of the pod on the GPU that may leave it for that of other pods, bytes",
                usage.memory_resident_bytes as f64,
            ),
            (
                "sluice_client_memory_swapped_bytes",
                "Memory of the pod that has left the GPU, or waits for room there, bytes",
                usage.memory_swapped_bytes as f64,
            ),
            (
                "sluice_client_memory_peak_bytes",
                "Largest amount of GPU memory that the pod ever had reserved, bytes",
                usage.memory_peak_bytes as f64,
            ),
            (
                "sluice_client_suspended",
                "1 if the pod is suspended by its annotation, else 0",
                f64::from(client.suspended),
            ),
            (
                "sluice_client_adopted_processes",
                "Unhooked processes whose channel groups are scheduled by the manager",
                f64::from(usage.adopted_processes),
            ),
            (
                "sluice_client_stopped_processes",
                "Processes that the manager has stopped because of violations",
                f64::from(usage.stopped_processes),
            ),
        ],
    )?;
    latency_families::add(families, &own, usage, client.slo_ns)?;
    for (reason, launches) in &usage.bypassed {
        let name = "sluice_client_bypassed_launches_total";
        let help = "Launches that bypassed the hook, as the pod's processes report them";
        let labels = [own.as_slice(), &[("reason", reason.as_str())]].concat();
        families.counter(name, help, &labels)?.inc_by(*launches as f64);
    }
    for (reason, processes) in &usage.unsteered_processes {
        let name = "sluice_client_unsteered_processes";
        let help = "Unhooked processes whose channel groups cannot be scheduled, and attached ones that cannot be inspected, by reason";
        let labels = [own.as_slice(), &[("reason", reason.as_str())]].concat();
        families.gauge(name, help, &labels)?.set(f64::from(*processes));
    }
    for (kind, violations) in &usage.violations {
        let name = "sluice_client_violations_total";
        let help = "Violations of the pod's limits by its processes, by kind";
        let labels = [own.as_slice(), &[("kind", kind.as_str())]].concat();
        families.counter(name, help, &labels)?.inc_by(*violations as f64);
    }
    for process in &usage.processes {
        let container = pod.and_then(|pod| pod.container_names.get(&process.container_id));
        let labels = labels_in(container.map_or("", String::as_str));
        let help = "Attached processes; the label container is where each runs";
        families.gauge("sluice_client_processes", help, &labels)?.inc();
        let name = "sluice_client_processes_memory_used_bytes";
        let help = "GPU memory reserved by processes, bytes; the label container is where they run";
        families.gauge(name, help, &labels)?.add(process.memory_used_bytes as f64);
    }
    let class = class_name(client.class()).unwrap_or("unknown");
    let request = pod.and_then(|pod| GpuRequest::from_annotations(&pod.annotations).ok()?);
    let priority = request.map_or("unknown", |request| request.class.name());
    let more = [("class", class), ("priority", priority), ("pod_uid", client.pod_uid.as_str())];
    let help = "Always 1; the labels are the pod's class, requested priority and uid";
    families.set_gauges(&[own.as_slice(), &more].concat(), &[("sluice_client_info", help, 1.0)])
}

/// The name of a class in labels and on the state page, as annotations have it. `None`: a client that was left out of the
/// set has no class.
pub(super) fn class_name(class: Class) -> Option<&'static str> {
    match class {
        Class::LatencyCritical => Some("latency-critical"),
        Class::High => Some("high"),
        Class::Normal => Some("normal"),
        Class::BestEffort => Some("best-effort"),
        Class::Unspecified => None,
    }
}
