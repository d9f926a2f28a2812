//! What the node agent asks: every client's promise and use, in one consistent look.

use super::DataPlane;
use crate::adopt::Why;
use crate::client_table::Client;
use crate::definition::Who;
use crate::process::Process;
use sluice_core::ledger::Class;
use sluice_core::{ClientId, ProcessId};
use sluice_proto::control::{self, ClientUsage, SnapshotResponse, Steering};
use std::collections::HashMap;

impl DataPlane {
    pub(super) fn snapshot(&mut self) -> SnapshotResponse {
        self.refresh_gauges();
        let mut clients: Vec<ClientUsage> =
            self.clients.iter().map(|(id, client)| self.usage_of(id, client)).collect();
        clients.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        SnapshotResponse {
            gpu_uuid: self.gpu_uuid.clone(),
            generation: self.in_force.generation,
            agent_instance: self.in_force.agent_instance.clone(),
            clients,
            refused: self.meters.refusals(),
            held: u32::try_from(self.lobby.len()).unwrap_or(u32::MAX),
            steering: Some(Steering {
                gate_changes: self.meters.gates.said(),
                preemptions: self.meters.preemptions.said(),
                ..self.meters.steering.said()
            }),
        }
    }

    fn usage_of(&self, id: ClientId, client: &Client) -> ClientUsage {
        let usage = self.tokens.usage(id, self.clock.now_ns());
        let account = self.memory.client(id).unwrap_or_default();
        let its = || self.processes.iter().filter(|(_, process)| process.client == id);
        let mut tally = client.tally.clone();
        for pages in its().filter_map(|(_, process)| process.pages.as_ref()) {
            tally.add_bypassed(pages.report());
        }
        let mut processes: Vec<control::Process> =
            its().map(|(process, state)| self.process(*process, state)).collect();
        processes.sort_by_key(|process| process.pid);
        ClientUsage {
            client: Some(as_in_force(client)),
            processes,
            gpu_time_ns: usage.map_or(0, |usage| usage.charged_ns),
            share_ppm: usage.map_or(0, |usage| usage.share.ppm()),
            memory_used_bytes: account.used,
            memory_peak_bytes: self.memory.peak(id),
            memory_denied: client.metrics.memory_denied.get(),
            grants: client.metrics.grants.get(),
            wait_ns: tally.wait_ns,
            bypassed: tally.bypassed(),
            left_out: client.left_out,
            adopted_processes: u32::try_from(self.adopted(id)).unwrap_or(u32::MAX),
            unsteered_processes: self.unsteered_by_label(id),
        }
    }

    /// Those whose reasons there are.
    fn unsteered_by_label(&self, id: ClientId) -> HashMap<String, u32> {
        let counts = Why::LABELS.iter().zip(self.unsteered(id)).filter(|(_, count)| *count > 0);
        counts.map(|(why, count)| ((*why).to_owned(), u32::try_from(count).unwrap_or(u32::MAX))).collect()
    }

    fn process(&self, id: ProcessId, process: &Process) -> control::Process {
        control::Process {
            pid: process.pid.unwrap_or(0),
            container_id: process.container.clone().unwrap_or_default(),
            memory_used_bytes: self.memory.held_by(id),
        }
    }
}

fn sort_key(usage: &ClientUsage) -> Option<(&str, &str, &str)> {
    usage.client.as_ref().map(|client| (&*client.namespace, &*client.pod, &*client.pod_uid))
}

fn as_in_force(client: &Client) -> control::Client {
    let definition = &client.definition;
    let (pod_uid, namespace, pod) = match &definition.who {
        Who::Pod { uid, namespace, name } => (uid.clone(), namespace.clone(), name.clone()),
        Who::Named(name) => (String::new(), String::new(), name.clone()),
    };
    let named = control::Client { pod_uid, namespace, pod, ..control::Client::default() };
    if client.left_out {
        return named;
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
        ..named
    }
}
