//! The node agent's end of the control socket.

use super::hook::PATIENCE;
use super::{World, until};
use sluice_pod_manager::ClientSource;
use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{
    Class, Client, ClientUsage, NextReadingRequest, ReportMemoryRequest, ReportMemoryResponse,
    SetClientsRequest, SnapshotRequest, SnapshotResponse, Violation, ViolationsRequest,
};
use std::path::{Path, PathBuf};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// A best-effort pod with a request of 0.3 and 1 GiB; its name is the end of its uid.
pub fn pod(uid: &str) -> Client {
    Client {
        pod_uid: uid.to_owned(),
        namespace: "ml".into(),
        pod: format!("pod-{}", &uid[uid.len() - 4..]),
        class: Class::BestEffort.into(),
        quota_ppm: 300_000,
        limit_ppm: 1_000_000,
        memory_bytes: super::GIB,
        slo_ns: 0,
        gang: String::new(),
        overcommit: false,
        suspended: false,
    }
}

/// The n-th pod's uid.
pub fn uid(n: usize) -> String {
    format!("0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b{n:04}")
}

/// The path of a world's control socket.
pub fn control_socket(world: &World) -> PathBuf {
    match &world.config.clients {
        ClientSource::Agent(agent) => agent.control.clone(),
        ClientSource::File { .. } => panic!("this manager has a resource file"),
    }
}

/// The agent.
pub struct Agent {
    runtime: tokio::runtime::Runtime,
    client: PodManagerClient<Channel>,
    pub instance: String,
    pub generation: u64,
}

impl Agent {
    /// Connects as soon as it can.
    pub fn connect(world: &World) -> Self {
        Self::connect_to(&control_socket(world))
    }

    /// As [`Self::connect`], to a manager of whatever kind.
    pub fn connect_to(socket: &Path) -> Self {
        until("the control socket is there", || socket.exists());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint =
            Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().timeout(PATIENCE);
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, client: PodManagerClient::new(channel), instance: "agent-1".into(), generation: 0 }
    }

    /// Sends the next generation; it is in force when this returns.
    pub fn set(&mut self, clients: &[Client]) {
        self.generation += 1;
        self.try_set(self.generation, clients).unwrap();
    }

    pub fn try_set(&mut self, generation: u64, clients: &[Client]) -> Result<u64, Status> {
        let request = SetClientsRequest {
            generation,
            agent_instance: self.instance.clone(),
            clients: clients.to_vec(),
        };
        let answer = self.runtime.block_on(self.client.set_clients(request));
        answer.map(|answer| answer.into_inner().generation)
    }

    pub fn snapshot(&mut self) -> SnapshotResponse {
        self.runtime.block_on(self.client.snapshot(SnapshotRequest {})).unwrap().into_inner()
    }

    /// The violations after a number; there is one.
    pub fn violations(&mut self, after: u64) -> Vec<Violation> {
        let answer = self.runtime.block_on(self.client.violations(ViolationsRequest { after }));
        answer.unwrap().into_inner().violations
    }

    /// Sends a reading of the memory of processes.
    pub fn report_memory(&mut self, request: ReportMemoryRequest) -> ReportMemoryResponse {
        self.runtime.block_on(self.client.report_memory(request)).unwrap().into_inner()
    }

    /// Asks whether a reading is wanted. Returns once it is.
    pub fn next_reading(&mut self) -> bool {
        self.runtime.block_on(self.client.next_reading(NextReadingRequest {})).unwrap().into_inner().wanted
    }

    /// What a pod has had; `None` if it is no client.
    pub fn usage(&mut self, uid: &str) -> Option<ClientUsage> {
        let is = |usage: &ClientUsage| usage.client.as_ref().is_some_and(|client| client.pod_uid == uid);
        self.snapshot().clients.into_iter().find(is)
    }
}
