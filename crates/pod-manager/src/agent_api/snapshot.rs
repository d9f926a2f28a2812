//! What the node agent reads: the promise and the use of every client, at one moment.

use super::AgentApi;
use crate::channel_groups::ChannelGroups;
use crate::clients::{Client, ClientKey, Clients, Process, Processes};
use crate::grants::Grants;
use crate::io::Io;
use crate::unhooked::scanning::ObstacleKind;
use crate::unhooked::{Unhooked, scheduled};
use sluice_core::ledger::Class;
use sluice_core::{ClientId, ProcessId};
use sluice_proto::control::{self, ClientUsage, SnapshotResponse, Steering};
use std::collections::HashMap;

/// The parts that a snapshot is taken of.
pub(crate) struct SnapshotSources<'a> {
    pub(crate) clients: &'a Clients,
    pub(crate) processes: &'a Processes,
    pub(crate) grants: &'a Grants,
    pub(crate) groups: &'a ChannelGroups,
    pub(crate) unhooked: &'a Unhooked,
    /// Attaches that wait for their pods.
    pub(crate) pending: usize,
    pub(crate) io: &'a Io,
}

impl AgentApi {
    pub(crate) fn snapshot(&self, sources: &SnapshotSources<'_>) -> SnapshotResponse {
        let mut clients: Vec<ClientUsage> =
            sources.clients.iter().map(|(id, client)| sources.usage_of(id, client)).collect();
        clients.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let metrics = &sources.io.metrics;
        SnapshotResponse {
            gpu_uuid: self.gpu_uuid.clone(),
            generation: self.generation,
            agent_instance: self.agent_instance.clone(),
            clients,
            refused: metrics.refusals(),
            held: u32::try_from(sources.pending).unwrap_or(u32::MAX),
            steering: Some(Steering {
                gate_changes: metrics.stream_gates.to_proto(),
                preemptions: metrics.preemptions.to_proto(),
                ..metrics.channel_groups.to_proto()
            }),
        }
    }
}

impl SnapshotSources<'_> {
    fn usage_of(&self, id: ClientId, client: &Client) -> ClientUsage {
        let usage = self.grants.ledger.usage(id, self.io.now());
        let account = self.clients.memory.client(id).unwrap_or_default();
        let mut bypasses = client.bypasses.clone();
        for pages in self.processes.of_client(id).filter_map(|(_, process)| process.pages.as_ref()) {
            bypasses.add(pages.report());
        }
        let mut processes: Vec<control::Process> =
            self.processes.of_client(id).map(|(id, process)| self.process(id, process)).collect();
        processes.sort_by_key(|process| process.pid);
        let unhooked = scheduled(id, self.processes, self.groups);
        ClientUsage {
            client: Some(as_in_force(client)),
            processes,
            gpu_time_ns: usage.map_or(0, |usage| usage.charged_ns),
            share_ppm: usage.map_or(0, |usage| usage.share.ppm()),
            memory_used_bytes: account.used,
            memory_peak_bytes: self.clients.memory.peak(id),
            memory_denied: client.metrics.memory.denied.get(),
            grants: client.metrics.grants.granted.get(),
            wait_ns: client.wait_ns,
            bypassed: bypasses.by_label(),
            left_out: client.removed,
            adopted_processes: u32::try_from(unhooked).unwrap_or(u32::MAX),
            unsteered_processes: self.unscheduled_by_label(id),
        }
    }

    /// Processes without the hook that are not scheduled, by reason, without reasons that do not occur.
    fn unscheduled_by_label(&self, id: ClientId) -> HashMap<String, u32> {
        let counts =
            ObstacleKind::LABELS.iter().zip(self.unhooked.unscheduled(id)).filter(|(_, count)| *count > 0);
        counts.map(|(why, count)| ((*why).to_owned(), u32::try_from(count).unwrap_or(u32::MAX))).collect()
    }

    fn process(&self, id: ProcessId, process: &Process) -> control::Process {
        control::Process {
            pid: process.pid.unwrap_or(0),
            container_id: process.container.clone().unwrap_or_default(),
            memory_used_bytes: self.clients.memory.held_by(id),
        }
    }
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
        Class::BestEffort => control::Class::BestEffort,
        Class::LatencyCritical => control::Class::LatencyCritical,
    };
    control::Client {
        class: class.into(),
        quota_ppm: definition.spec.request.ppm(),
        limit_ppm: definition.spec.limit.ppm(),
        memory_bytes: definition.memory,
        weight: definition.spec.weight,
        slo_ns: definition.slo_ns,
        ..identity
    }
}
