//! The node agent's side of the manager: the control API on a socket and a thread of its own, the set of clients in force, and the
//! snapshot of what clients were promised and have used.

mod server;
mod snapshot;

pub(crate) use server::start;

use crate::client_set::{ClientSet, Outdated};
use crate::config::ClientSource;
use crate::definition::Definition;
use tracing::info;

/// Which set of clients is in force, and for which GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentApi {
    gpu_uuid: String,
    agent_instance: String,
    generation: u64,
}

impl AgentApi {
    pub(crate) fn new(source: &ClientSource) -> Self {
        let gpu_uuid = match source {
            ClientSource::File { .. } => String::new(),
            ClientSource::Agent(agent) => agent.gpu_uuid.clone(),
        };
        Self { gpu_uuid, ..Self::default() }
    }

    /// Puts a set of the node agent's in force, unless a later one of the same agent is. Returns its clients.
    pub(crate) fn accept(&mut self, set: ClientSet) -> Result<Vec<Definition>, Outdated> {
        let ClientSet { generation, agent_instance, clients } = set;
        if agent_instance == self.agent_instance && generation < self.generation {
            return Err(Outdated { in_force: self.generation });
        }
        info!(
            generation,
            agent_instance,
            clients = clients.len(),
            "set of clients received from the node agent"
        );
        (self.agent_instance, self.generation) = (agent_instance, generation);
        Ok(clients)
    }
}

#[cfg(test)]
mod tests;
