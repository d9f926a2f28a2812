//! The energy of the GPU, attributed to clients.

use super::Grants;
use crate::clients::Clients;
use crate::io::Io;
use crate::processes::Processes;
use sluice_core::ClientId;
use std::time::Duration;

impl Grants {
    /// Attributes what the GPU has drawn since the last reading. `total_mj`: since its driver was loaded, millijoules; `None`: it is not
    /// known.
    pub(crate) fn attribute_energy(
        &mut self,
        total_mj: Option<u64>,
        clients: &mut Clients,
        processes: &mut Processes,
        io: &mut Io,
    ) {
        let Some(total_mj) = total_mj else { return };
        let now = io.now();
        let ids: Vec<ClientId> = clients.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.count_gpu_time(id, clients, processes, &mut io.trace, now);
        }
        let executed = clients.iter().map(|(id, client)| (id, client.gpu_time.total_ns));
        let Some(parts) = self.energy.read(total_mj, now, executed) else { return };
        io.metrics.idle_energy_joules.inc_by(joules(parts.idle_mj));
        for (id, mj) in parts.clients {
            if let Some(client) = clients.get(id) {
                client.metrics.energy_joules.inc_by(joules(mj));
            }
        }
    }
}

fn joules(mj: u64) -> f64 {
    Duration::from_millis(mj).as_secs_f64()
}
