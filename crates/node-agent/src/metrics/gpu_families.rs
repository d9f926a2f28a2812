//! The series of each GPU and its pod-manager.

use prometheus::core::GenericGaugeVec;
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Registry};
use sluice_placement::inventory::Gpu;

use super::Facts;
use super::channel_groups;
use super::families::{opts, ratio, take, whole};
use crate::managers::ManagerState;

const GPU: [&str; 2] = ["gpu", "node"];

/// Series of each GPU.
pub(super) struct GpuFamilies {
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
    channel_groups: channel_groups::Series,
}

impl GpuFamilies {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge =
            |name: &str, help, labels: &[&str]| take(registry, IntGaugeVec::new(opts(name, help), labels));
        let counter =
            |name: &str, help, labels: &[&str]| take(registry, IntCounterVec::new(opts(name, help), labels));
        let quota =
            opts("sluice_gpu_quota_assigned_ratio", "Share of the GPU's time that is guaranteed to pods");
        let quota: GenericGaugeVec<_> = take(registry, GaugeVec::new(quota, &GPU))?;
        Ok(Self {
            info: gauge(
                "sluice_gpu_info",
                "Always 1; the labels describe a GPU of this node",
                &["gpu", "node", "model", "index", "pci", "numa"],
            )?,
            healthy: gauge("sluice_gpu_healthy", "1 if the GPU takes new pods, else 0", &GPU)?,
            memory: gauge("sluice_gpu_memory_bytes", "Memory of the GPU, bytes", &GPU)?,
            quota,
            memory_assigned: gauge(
                "sluice_gpu_memory_assigned_bytes",
                "Memory of the GPU that is promised to pods, bytes",
                &GPU,
            )?,
            clients: gauge("sluice_gpu_clients", "Clients of the GPU", &GPU)?,
            up: gauge(
                "sluice_manager_up",
                "1 if the GPU's pod-manager answers and has its current clients, else 0",
                &GPU,
            )?,
            restarts: counter("sluice_manager_restarts_total", "Restarts of the pod-manager", &GPU)?,
            self_test: gauge(
                "sluice_gpu_self_test",
                "Outcome of the self-test of the GPU's driver controls: 1 for one of the outcomes",
                &["gpu", "node", "outcome"],
            )?,
            refused: counter(
                "sluice_manager_refused_connections_total",
                "Connections that the pod-manager refused",
                &["gpu", "node", "reason"],
            )?,
            channel_groups: channel_groups::Series::new(registry)?,
        })
    }

    pub(super) fn add(&self, gpu: &Gpu, facts: &Facts) {
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
            if let Some(reported) = &snapshot.steering {
                self.channel_groups.add(own, reported);
            }
        }
    }
}
