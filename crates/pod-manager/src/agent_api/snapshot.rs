//! What the node agent reads: the promise and the use of every client, at one moment.

use super::AgentApi;
use crate::clients::{Client, Clients};
use crate::definition::ClientKey;
use crate::io::Io;
use crate::processes::Processes;
use prometheus::IntGauge;
use sluice_core::ClientId;
use sluice_core::ledger::Class;
use sluice_core::processes::{ObstacleKind, ViolationKind};
use sluice_proto::control::{self, ClientUsage, SnapshotResponse, Steering};

impl AgentApi {
    /// `pending`: attaches that wait for their pods.
    pub(crate) fn snapshot(
        &self,
        pending: usize,
        clients: &Clients,
        processes: &Processes,
        io: &Io,
    ) -> SnapshotResponse {
        let usage = clients.iter().map(|(id, client)| usage_of(id, client, clients, processes, io.now()));
        let mut clients: Vec<ClientUsage> = usage.collect();
        clients.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let metrics = &io.metrics;
        let [preemption_times, hand_off_times] = metrics.switch_times.to_proto();
        SnapshotResponse {
            gpu_uuid: self.gpu_uuid.clone(),
            generation: self.generation,
            agent_instance: self.agent_instance.clone(),
            clients,
            refused: metrics.refusals(),
            held: u32::try_from(pending).unwrap_or(u32::MAX),
            event_loop: Some(metrics.rounds()),
            idle_energy_joules: metrics.idle_energy_joules.get(),
            memory_readings: metrics.memory_readings.by_label(),
            policy_reloads: metrics.policy_reloads.by_outcome(),
            log_lines_dropped: sluice_daemon::log::dropped_lines(),
            steering: Some(Steering {
                preemptions: metrics.preemptions.to_proto(),
                preemption_times,
                hand_off_times,
                ..metrics.channel_groups.to_proto()
            }),
        }
    }
}

fn usage_of(
    id: ClientId,
    client: &Client,
    clients: &Clients,
    processes: &Processes,
    now: u64,
) -> ClientUsage {
    let account = clients.memory.client(id).unwrap_or_default();
    let mut bypasses = client.bypasses.clone();
    for pages in processes.of_client(id).filter_map(|(_, process)| process.endpoint.pages.as_ref()) {
        bypasses.add(pages.report());
    }
    let mut listed: Vec<control::Process> = processes
        .of_client(id)
        .map(|(id, process)| control::Process {
            pid: process.pid.unwrap_or(0),
            container_id: process.endpoint.container.clone().unwrap_or_default(),
            memory_used_bytes: clients.memory.held_by(id),
        })
        .collect();
    listed.sort_by_key(|process| process.pid);
    let (critical, latencies) = (clients.is_critical(id), &client.metrics.latencies);
    let unscheduled = processes.unscheduled(id);
    let unscheduled = ObstacleKind::LABELS.iter().zip(unscheduled).filter(|(_, count)| *count > 0);
    ClientUsage {
        client: Some(as_in_force(client)),
        processes: listed,
        gpu_time_ns: client.gpu_time.total_ns,
        share_ppm: client.gpu_time.share(now).ppm(),
        memory_used_bytes: account.used,
        memory_peak_bytes: account.peak,
        memory_overhead_bytes: account.overhead,
        memory_denied: client.metrics.memory.denied.get(),
        memory_resident_bytes: bytes(&client.metrics.memory.resident),
        memory_swapped_bytes: bytes(&client.metrics.memory.swapped),
        memory_moved_bytes: client.metrics.memory.moved.get(),
        memory_waited_seconds: client.metrics.memory.waited_seconds.get(),
        grants: client.metrics.grants.granted.get(),
        energy_joules: client.metrics.energy_joules.get(),
        wait_ns: client.wait_ns,
        delayed_ns: client.delayed_ns,
        hold_and_wait_ns: client.hold_and_wait_ns,
        violations: ViolationKind::LABELS
            .iter()
            .zip(&client.metrics.violations)
            .filter(|(_, counter)| counter.get() > 0)
            .map(|(kind, counter)| ((*kind).to_owned(), counter.get()))
            .collect(),
        stopped_processes: processes.stopped_processes(id),
        steps: critical.then(|| latencies.steps.to_proto()),
        requests: critical.then(|| latencies.requests.to_proto()),
        slo_violations: latencies.slo_violations.get(),
        unobserved_steps: latencies.unobserved_steps.get(),
        bypassed: bypasses.by_label(),
        left_out: client.removed,
        grants_withheld: client.metrics.suspended.get() != 0,
        adopted_processes: u32::try_from(processes.scheduled_unhooked(id)).unwrap_or(u32::MAX),
        unsteered_processes: unscheduled.map(|(why, count)| ((*why).to_owned(), count)).collect(),
    }
}

fn bytes(gauge: &IntGauge) -> u64 {
    gauge.get().try_into().unwrap_or(0)
}

fn sort_key(usage: &ClientUsage) -> Option<(&str, &str, &str)> {
    usage.client.as_ref().map(|client| (&*client.namespace, &*client.pod, &*client.pod_uid))
}

fn as_in_force(client: &Client) -> control::Client {
    let definition = &client.definition;
    let (pod_uid, namespace, pod) = match &definition.key {
        ClientKey::Pod { uid, namespace, name } => (uid.clone(), namespace.clone(), name.clone()),
        ClientKey::Named(name) => (String::new(), String::new(), name.clone()),
    };
    let identity = control::Client { pod_uid, namespace, pod, ..control::Client::default() };
    if client.removed {
        return identity;
    }
    let class = match definition.spec.class {
        Class::LatencyCritical => control::Class::LatencyCritical,
        Class::High => control::Class::High,
        Class::Normal => control::Class::Normal,
        Class::BestEffort => control::Class::BestEffort,
    };
    control::Client {
        class: class.into(),
        quota_ppm: definition.spec.request.ppm(),
        limit_ppm: definition.spec.limit.ppm(),
        memory_bytes: definition.memory,
        slo_ns: definition.slo_ns,
        gang: definition.gang.clone().unwrap_or_default(),
        overcommit: definition.overcommit,
        suspended: definition.suspended,
        ..identity
    }
}
